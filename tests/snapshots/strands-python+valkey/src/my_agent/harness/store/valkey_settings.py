"""The settings of Valkey as the session store."""

from dataclasses import dataclass

from ..settings import integer
from .settings import StoreSettings


@dataclass(frozen=True)
class ValkeySettings(StoreSettings):
    """When a turn counts as saved."""

    valkey_wait_replicas: int = integer(0, 0, 10)
