"""Capabilities and settings of your own; README.md has one. Updates leave this file alone."""

from dataclasses import dataclass

from .capability import Capability
from .settings import CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """Your settings, declared by `string` and `integer`: `orders_url` is the variable ORDERS_URL."""


OWN_CAPABILITIES: list[type[Capability]] = []
