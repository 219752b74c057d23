"""Long-term memory as the turns use it: who somebody is, what is recalled, what is recorded."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..contract import AgentError, Ask, is_blank
from ..settings import Settings
from .agentcore import AgentCore
from .memories import Item
from .namespaces import Who
from .options import Options
from .project import Project
from .recall import Found, Recall
from .recorder import Recorder
from .secrets import Secrets
from .topology import build_topology

SLASH = "An actor id has no / here: the namespaces of two people could meet."


@dataclass
class Turn:
    """What a turn knows of long-term memory; what it adds is remembered when it commits."""

    who: Who
    recall: Recall
    is_writable: bool
    added: list[str] = field(default_factory=list)
    is_over = False

    def add(self, text: str) -> None:
        """Remember a text, if the turn commits. Raises ValueError and RuntimeError."""
        if self.is_over:
            raise RuntimeError("The turn is over.")
        self.added.append(_checked(text, self.is_writable))


current: ContextVar[Turn] = ContextVar("turn")  # of the task that runs it, and of its tools


class LongTerm:
    """The long-term memories of a project; without collections of that kind it does nothing."""

    def __init__(
        self, settings: Settings, options: Options, project: Project, secrets: Secrets
    ) -> None:
        """Raises Unavailable for what cannot work; the text is for the owner."""
        built = build_topology(settings, options, project, secrets)
        self.clients, self.memories, self.readers = built.clients, built.memories, built.readers
        self.project_id, self._seconds = options.project_id, options.recall_timeout_seconds
        self.recorder = Recorder(built.writers)
        self.actor_required, self.is_writable = bool(built.memories), bool(built.writers)

    @property
    def is_waiting(self) -> bool:
        """Whether something of a committed turn is still to be recorded."""
        return self.recorder.is_waiting

    def prepare(self) -> None:
        """Begin to make the clients, so that the first turn need not wait for them."""
        for memory in self.memories.values():
            if isinstance(memory, AgentCore):
                self.clients.prepare(memory.region)

    def contacts(self) -> list[str]:
        """Where each collection is, a line each."""
        return [
            f"Long-term memory: {'contacts' if isinstance(it, AgentCore) else 'in'} {it.contact}"
            for it in self.memories.values()
        ]

    def who(self, ask: Ask) -> Who:
        """Who asks. Raises AgentError: `actor_required` and `invalid_actor`."""
        if self.actor_required and not ask.actor:
            raise AgentError("actor_required")
        if "/" in (ask.actor or "") and self.actor_required:
            raise AgentError("invalid_actor", SLASH)
        return Who(ask.actor or "", ask.session_id, self.project_id)

    def begin(self, ask: Ask) -> Turn:
        """What the turn of this task knows. Raises as `who` does."""
        who = self.who(ask)
        turn = Turn(who, self._recall(who), self.is_writable)
        current.set(turn)
        return turn

    def record(self, turn: Turn, spoken: Sequence[Item]) -> None:
        """Hear what a committed turn said; what it added is remembered with it."""
        turn.is_over = True
        added: list[Item] = [("USER", text) for text in turn.added]
        self.recorder.record(turn.who, [*spoken, *added])

    async def search(self, who: Who, query: str) -> list[Found]:
        """What is remembered, outside turns."""
        return await self._recall(who).search(query)

    def add(self, who: Who, text: str) -> None:
        """Remember a text, outside turns. Raises ValueError and RuntimeError."""
        self.recorder.record(who, [("USER", _checked(text, self.is_writable))])

    async def close(self, seconds: float) -> None:
        """Record what waits within this time, and take no more."""
        await self.recorder.close(seconds)
        self.clients.close()

    def _recall(self, who: Who) -> Recall:
        return Recall(who, self.readers, self._seconds)


def _checked(text: str, is_writable: bool) -> str:
    if is_blank(text):
        raise ValueError("A blank text cannot be remembered.")
    if not is_writable:
        raise RuntimeError("This agent has no long-term memory that it may write to.")
    return text
