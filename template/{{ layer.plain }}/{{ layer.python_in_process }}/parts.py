"""What the turns of one process share: a model, sessions in memory, and no long-term memory."""

import re
from typing import Any

from .contract import Ask
from .model import build_model, check_model, model_endpoint
from .sessions import InProcess, Sessions
from .settings import Settings


class Parts:
    """The parts, and what the commands and the turns have to know of them."""

    actor_required = False  # whether every caller must name an actor
    is_waiting = False  # whether something of a committed turn is still to be written
    kept = "Nothing was kept: sessions live in this process."

    def __init__(self, settings: Settings) -> None:
        self.settings, self.model = settings, build_model(settings)
        self.sessions = Sessions(settings, InProcess(settings))

    @staticmethod
    def check(settings: Settings) -> list[dict[str, Any]]:
        """What is wrong with the environment and the files of these parts."""
        return check_model(settings)

    def contacts(self) -> list[str]:
        """What this process will contact, a line each."""
        where = "nothing" if self.settings.model == "offline" else model_endpoint(self.settings)
        shown = re.sub("//[^/]*@", "//", where)  # without a password that the address holds
        return [f"Model: {self.settings.model}, contacts {shown}", "Sessions: in this process"]

    def agent_options(self, ask: Ask) -> dict[str, Any]:
        """More arguments for the agent of one turn."""
        return {}

    def record(self, ask: Ask, messages: list[Any]) -> None:
        """Hear what a committed turn added."""

    async def close(self) -> None:
        """Write what waits to be written."""
