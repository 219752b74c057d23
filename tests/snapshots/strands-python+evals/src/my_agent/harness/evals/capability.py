"""The model that judges replies, as `check --connect` calls it."""

from ..capability import Capability
from ..findings import Finding
from ..models.model_call import call_model
from .settings import EvalSettings


class Evals(Capability):
    """Changes no turn: the command `eval` makes the judge itself."""

    settings: EvalSettings

    async def ping(self) -> list[Finding]:
        name = self.settings.judge_model
        return await call_model(self.load().model, self.settings, "JUDGE_MODEL", name)
