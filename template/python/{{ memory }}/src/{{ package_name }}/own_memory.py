"""Long-term memory as you want it: what is shown, recorded and added. Updates leave it alone."""

from .harness.memory import MemoryPolicy


class OwnMemory(MemoryPolicy):
    """Override attributes and methods of `MemoryPolicy`; docs/memory.md has an example."""
