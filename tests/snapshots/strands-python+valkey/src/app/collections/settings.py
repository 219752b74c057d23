"""The settings of the declared collections."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class DeclarationSettings(CoreSettings):
    """Which agent runs, and how long its secrets are cached."""

    agent_id: str | None = None  # None: the only file in agents/
    secret_cache_seconds: int = integer(300, 0, 86_400)
