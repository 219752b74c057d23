"""What the turns of one process share: the model and the sessions, which live in memory."""

from typing import Any

from .contract import TurnRequest
from .model import build_model, check_model, model_endpoint
from .session_store import InProcess
from .sessions import Sessions
from .settings import Settings, without_password


class Runtime:
    """The model, the sessions, and what the commands report about them."""

    actor_required = False  # whether every caller must send an actor id
    is_waiting = False  # whether data of a committed turn is still to be written
    retention_notice = "Nothing was kept: sessions live in this process."

    def __init__(self, settings: Settings) -> None:
        self.settings, self.model = settings, build_model(settings)
        self.sessions = Sessions(settings, InProcess(settings))

    @staticmethod
    def check(settings: Settings) -> list[dict[str, Any]]:
        """Return the findings about what the settings name."""
        return check_model(settings)

    def describe_endpoints(self) -> list[str]:
        """Return what this process will contact, one line each, without passwords."""
        model = self.settings.model
        where = "nothing" if model == "offline" else without_password(model_endpoint(self.settings))
        return [f"Model: {model}, contacts {where}", "Sessions: in this process"]

    def agent_options(self, request: TurnRequest) -> dict[str, Any]:
        """Return further arguments for the agent of one turn."""
        return {}

    def record(self, request: TurnRequest, messages: list[Any]) -> None:
        """Pass on the messages of a committed turn."""

    async def open(self) -> None:
        """Connect; raises AgentError for what cannot work."""

    async def close(self) -> None:
        """Write what is still to be written, and disconnect."""
