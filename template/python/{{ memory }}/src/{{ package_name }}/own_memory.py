"""Your decisions about long-term memory. Template updates do not change this file."""

from .harness.memory import MemoryPolicy


class OwnMemory(MemoryPolicy):
    """Override attributes and methods of `MemoryPolicy`; docs/memory.md has an example."""
