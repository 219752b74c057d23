"""Calls a model for `check --connect`, to test the key, the address and the model's name."""

import os
import re
from dataclasses import replace

from ..contract import CONTROL, AgentError
from ..deadline import time_limit
from ..findings import Finding, diagnostic
from ..log import describe
from ..modules import ModelModule
from ..settings import CoreSettings
from .advice import advise
from .ask import ask

SECONDS = 60  # a local server may load the model first
MAX_TEXT = 300  # characters of the provider's message
# Variables whose values a provider may quote.
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK")


async def call_model(
    module: ModelModule, settings: CoreSettings, variable: str, name: str
) -> list[Finding]:
    """Call the model `name` until its first text; return findings about a failure.

    `variable` is the setting with the model's name. The request resembles a turn's: some models
    reject `max_tokens`, and a list of models does not test the key.
    """
    if settings.model == "offline" or not name:
        return []
    seconds = min(SECONDS, settings.turn_timeout_seconds)
    try:
        async with time_limit(seconds) as limit:
            # Avoid the SDK's warning about models that have no cache.
            model = module.build_model(replace(settings, model=name, prompt_cache=0))
            await ask(model, "Reply with one word.", "Hello", 0)
    except Exception as error:  # noqa: BLE001 (of any client)
        if limit.expired():
            why = f"no answer within {seconds} s: check {module.ADDRESS} and the network"
        else:
            why = _why(error, module, variable)
        return [diagnostic(f"SET-{variable}", f"Cannot call {variable}={name}: {why}.")]
    return []


def _why(error: Exception, module: ModelModule, variable: str) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    kind = error.detail if isinstance(error, AgentError) else describe(error)
    advice = advise(kind, module, variable)
    why = f"{kind}: {advice}" if advice else kind
    text = " ".join(re.sub(CONTROL, " ", str(error)).split())
    for secret in filter(None, map(os.environ.get, (module.CREDENTIALS, *SECRETS))):
        text = text.replace(secret, "…")
    has_text = text and "HTTP" in kind
    return f"{why} ({text[:MAX_TEXT]})" if has_text else why
