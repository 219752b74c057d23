"""The settings of the session store."""

from dataclasses import dataclass

from ..collections.settings import DeclarationSettings
from ..settings import integer


@dataclass(frozen=True)
class StoreSettings(DeclarationSettings):
    """Limit the time of a store call and the number of checkpoints of a session."""

    store_timeout_seconds: int = integer(3, 1, 60)
    checkpoints: int = integer(0, 0, 1000)
