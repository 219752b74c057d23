"""Why a turn failed, for those who run this agent, and what to look at."""

import re

from .contract import CONTROL, AgentError
from .model import ADDRESS, CREDENTIALS
from .settings import proxy_variables

HINTS = {
    "HTTP 40[13]|Credential": f"look at {CREDENTIALS}",
    "HTTP 40[04]": f"look at MODEL and {ADDRESS}",
    "HTTP 429|[Tt]hrottl": "the provider's limit is reached, try again later",
    "Connect|OSError": f"look at {ADDRESS} and the network",
    "HTTP 5": "the provider failed or is overloaded, try again later",
}


def explain(error: AgentError) -> str:
    """Return why a turn failed, with a line of advice if the model failed."""
    why = str(error.__cause__ or error.detail or error.type)
    lines = [f"({re.sub(CONTROL, '', why)})"]
    for form, advice in HINTS.items():
        if error.type == "model_failed" and re.search(form, error.detail):
            if names := proxy_variables():
                advice = advice.replace(" and the network", f", {names} and the network")
            lines.append(f"{error.detail}: {advice}.")
            break
    return "\n".join([*lines, ""])
