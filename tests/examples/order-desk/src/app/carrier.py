"""The carrier of the parcels: where they are, and the events that it sends."""

import hmac
from typing import Literal

from pydantic import BaseModel

from .orders import Order


class ParcelEvent(BaseModel):
    """An event of the carrier: the parcel of an order has moved."""

    order: str
    state: Literal["sent", "delivered"]


async def locate(order: Order) -> str:
    """Return where the parcel of an order is. Ask your carrier here."""
    return "on its way" if order.state == "sent" else order.state


def sign(body: bytes, secret: str) -> str:
    """Return the signature that the carrier sends with an event, in hexadecimal."""
    return hmac.new(secret.encode(), body, "sha256").hexdigest()


def is_signed(body: bytes, secret: str, signature: str) -> bool:
    """Whether the carrier has signed this body; it takes the same time for each wrong one."""
    return hmac.compare_digest(sign(body, secret).encode(), signature.encode())
