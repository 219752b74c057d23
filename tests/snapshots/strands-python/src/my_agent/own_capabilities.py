"""Capabilities and settings of your own; docs/capabilities.md has one. Updates leave it alone."""

from dataclasses import dataclass

from .harness import Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """Your settings, each a `string` or an `integer`; `orders_url` is read from ORDERS_URL."""


OWN_CAPABILITIES: list[type[Capability]] = []
