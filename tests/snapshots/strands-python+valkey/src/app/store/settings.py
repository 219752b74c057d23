"""The settings of the session store."""

from dataclasses import dataclass

from ..collections.settings import DeclarationSettings
from ..settings import integer


@dataclass(frozen=True)
class StoreSettings(DeclarationSettings):
    """How long a call may take, and how many checkpoints are kept."""

    store_timeout_seconds: int = integer(3, 1, 60)
    checkpoints: int = integer(0, 0, 1000)
