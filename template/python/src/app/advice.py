"""Why a call of the model failed, and what to look at, for those who run this agent."""

import re

from .contract import CONTROL, AgentError
from .model import ADDRESS, CREDENTIALS

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
    advice = advise(error.detail) if error.type == "model_failed" else ""
    if advice:
        lines.append(f"{error.detail}: {advice}.")
    return "\n".join([*lines, ""])


def advise(kind: str, variable: str = "MODEL") -> str:
    """Return advice for a failure, as `describe` names it, or "".

    `variable` is the setting that names the model.
    """
    for form, advice in HINTS.items():
        if re.search(form, kind):
            return advice.replace("MODEL", variable)
    return ""
