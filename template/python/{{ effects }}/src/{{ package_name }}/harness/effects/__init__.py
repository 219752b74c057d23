"""Side effects of tools that happen once: after the commit, or in the turn."""

from .functions import Effect, Rejected, after_commit, once

__all__ = ["Effect", "Rejected", "after_commit", "once"]
