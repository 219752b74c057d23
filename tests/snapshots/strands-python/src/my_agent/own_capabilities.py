"""Capabilities and settings of your own; README.md has one. Updates leave this file alone."""

from dataclasses import dataclass

from .harness import Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """Your settings, each a `string` or an `integer`; `orders_url` is read from ORDERS_URL."""


OWN_CAPABILITIES: list[type[Capability]] = []
