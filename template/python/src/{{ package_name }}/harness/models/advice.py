"""Advice for the operator about a failed model call."""

import re

from ..contract import CONTROL, AgentError
from ..log import causes_of
from ..modules import ModelModule
from ..settings import proxy_variables

HINTS = {
    "HTTP 40[13]|Credential": "check {credentials}",
    "HTTP 40[04]": "check {variable} and {address}",
    "HTTP 429|[Tt]hrottl": "the provider's limit is reached, retry later",
    "Connect|OSError": "check {address} and the network",
    "HTTP 5": "the provider failed or is overloaded, retry later",
}


def explain(error: AgentError, model: ModelModule) -> str:
    """Return a failure's reason, with a line of advice if the model failed."""
    cause = error.__cause__
    message = _provider_message(cause) if cause else ""
    why = message or str(cause or error.detail or error.type)
    lines = [f"({re.sub(CONTROL, '', why)})"]
    advice = advise(error.detail, model) if error.type == "model_failed" else ""
    if advice:
        lines.append(f"{error.detail}: {advice}.")
    return "\n".join([*lines, ""])


def advise(kind: str, model: ModelModule, variable: str = "MODEL") -> str:
    """Return advice for the failure `kind`, as `describe` formats it, or "".

    `variable` is the setting with the model's name.
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
    """Return the message in a provider's answer, without the client's own words."""
    for cause in causes_of(error):
        response = getattr(cause, "response", None)  # AWS clients set a dictionary
        body = response if isinstance(response, dict) else getattr(cause, "body", None)
        if not isinstance(body, dict):
            continue
        inner = body.get("error") or body.get("Error")
        fields = inner if isinstance(inner, dict) else body
        message = fields.get("message") or fields.get("Message")
        if isinstance(message, str):
            return message
    return ""
