"""Lets `check --connect` call the model that judges replies."""

from ..capability import Capability
from ..findings import Finding
from ..models.model_call import call_model
from .settings import EvalSettings


class Evals(Capability):
    """Checks the judge; the command `eval` builds and calls it."""

    settings: EvalSettings

    async def ping(self) -> list[Finding]:
        name = self.settings.judge_model
        return await call_model(self.load().model, self.settings, "JUDGE_MODEL", name)
