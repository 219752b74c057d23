"""Your capabilities and settings: see docs/capabilities.md. Updates keep your edits."""

from dataclasses import dataclass

from .harness import Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """Your settings: ORDERS_URL sets `orders_url: str = string(...)`, for example."""


OWN_CAPABILITIES: list[type[Capability]] = []
