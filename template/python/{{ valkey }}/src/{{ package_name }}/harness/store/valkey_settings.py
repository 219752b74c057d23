"""The settings of the Valkey session store."""

from dataclasses import dataclass

from ..settings import integer
from .settings import StoreSettings


@dataclass(frozen=True)
class ValkeySettings(StoreSettings):
    """Set the number of replicas that confirm a turn."""

    valkey_wait_replicas: int = integer(0, 0, 10)
