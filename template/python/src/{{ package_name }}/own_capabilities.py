"""Capabilities and settings of your own; docs/capabilities.md has one. Updates leave it alone."""

from dataclasses import dataclass

from .harness import Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """Your settings, such as `orders_url: str = string(...)`, which is read from ORDERS_URL."""


OWN_CAPABILITIES: list[type[Capability]] = []
