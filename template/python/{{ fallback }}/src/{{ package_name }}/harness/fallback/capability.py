"""The capability that falls back to a second model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..capability import Capability, wrap_model
from ..contract import Turn
from ..findings import Finding, diagnostic
from ..modules import LoadModules
from . import adapter
from .second import FallbackSwitch
from .settings import FallbackSettings


class Fallback(Capability):
    """Lets MODEL_FALLBACK answer a call that MODEL fails before its first content."""

    settings: FallbackSettings

    def __init__(
        self, settings: FallbackSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before

    @cached_property
    def model(self) -> Any:
        """The fallback model, built on first use."""
        settings = replace(self.settings, model=self.settings.model_fallback)
        return self.load().model.build_model(settings)

    def check(self) -> list[Finding]:
        """Report settings that leave a turn without a fallback model."""
        first = self.settings.model
        second = self.settings.model_fallback
        if not second:
            hint = "MODEL_FALLBACK is not set: if MODEL fails, no other model answers."
            return [diagnostic("SET-MODEL_FALLBACK", hint, "warning")]
        if first == "offline":
            hint = "MODEL_FALLBACK needs MODEL, which is not set. Set both."
            return [diagnostic("SET-MODEL_FALLBACK", hint)]
        if first == second:
            hint = "MODEL_FALLBACK is the same model as MODEL. Set a different model."
            return [diagnostic("SET-MODEL_FALLBACK", hint)]
        seconds = self.settings.fallback_seconds
        limit = self.settings.turn_timeout_seconds
        if seconds >= limit:
            hint = f"FALLBACK_SECONDS is {seconds}, not below TURN_TIMEOUT_SECONDS={limit}"
            hint += ": if MODEL hangs, the turn times out before the fallback."
            return [diagnostic("SET-FALLBACK_SECONDS", hint, "warning")]
        return []

    async def ping(self) -> list[Finding]:
        """Call the fallback model."""
        from ..models.model_call import call_model

        name = self.settings.model_fallback
        return await call_model(self.load().model, self.settings, "MODEL_FALLBACK", name)

    def describe(self, address: str) -> list[str]:
        """Return a line that names the fallback model."""
        second = self.settings.model_fallback
        return [f"Fallback: {second}, when {self.settings.model} fails"] if second else []

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Let the second model answer calls of the turn after a temporary failure."""
        if name := self.settings.model_fallback:
            seconds = self.settings.fallback_seconds
            adapter.prepare(
                FallbackSwitch(turn, name, lambda: self._model_of(turn), seconds), options
            )

    def _model_of(self, turn: Turn) -> Any:
        return wrap_model(self._before, self.model, turn.actor, turn)
