"""Why a call of the model failed, and what to look at, for those who run this agent."""

import re

from ..contract import CONTROL, AgentError
from ..log import causes_of
from ..modules import ModelModule
from ..settings import proxy_variables

HINTS = {
    "HTTP 40[13]|Credential": "look at {credentials}",
    "HTTP 40[04]": "look at {variable} and {address}",
    "HTTP 429|[Tt]hrottl": "the provider's limit is reached, try again later",
    "Connect|OSError": "look at {address} and the network",
    "HTTP 5": "the provider failed or is overloaded, try again later",
}


def explain(error: AgentError, model: ModelModule) -> str:
    """Return why a turn failed, with a line of advice if the model failed."""
    cause = error.__cause__
    message = _provider_message(cause) if cause else ""
    why = message or str(cause or error.detail or error.type)
    lines = [f"({re.sub(CONTROL, '', why)})"]
    advice = advise(error.detail, model) if error.type == "model_failed" else ""
    if advice:
        lines.append(f"{error.detail}: {advice}.")
    return "\n".join([*lines, ""])


def advise(kind: str, model: ModelModule, variable: str = "MODEL") -> str:
    """Return advice for a failure, as `describe` names it, or "".

    `variable` is the setting that names the model.
    """
    for form, advice in HINTS.items():
        if re.search(form, kind):
            if names := proxy_variables():
                advice = advice.replace(" and the network", f", {names} and the network")
            return advice.format(
                variable=variable, address=model.ADDRESS, credentials=model.CREDENTIALS
            )
    return ""


def _provider_message(error: BaseException) -> str:
    """Return the message in a provider's answer, without the words of the client around it."""
    for cause in causes_of(error):
        response = getattr(cause, "response", None)  # a mapping if it is of an AWS client
        body = response if isinstance(response, dict) else getattr(cause, "body", None)
        if not isinstance(body, dict):
            continue
        inner = body.get("error") or body.get("Error")
        fields = inner if isinstance(inner, dict) else body
        message = fields.get("message") or fields.get("Message")
        if isinstance(message, str):
            return message
    return ""
