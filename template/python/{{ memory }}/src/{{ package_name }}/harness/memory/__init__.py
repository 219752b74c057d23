"""The public names of long-term memory: for tools, routes, jobs and `own_memory`."""

from .actor_memory import ActorMemory, NotAdded, of_actor
from .base import Turns, Utterance
from .hits import Found, Hit, InjectionContext, memory_block
from .in_turn import add, search
from .namespaces import Who
from .policy import MemoryPolicy

__all__ = [
    "ActorMemory",
    "Found",
    "Hit",
    "InjectionContext",
    "MemoryPolicy",
    "NotAdded",
    "Turns",
    "Utterance",
    "Who",
    "add",
    "memory_block",
    "of_actor",
    "search",
]
