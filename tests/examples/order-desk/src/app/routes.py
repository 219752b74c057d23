"""The routes of the order desk: events of the carrier, an import of orders, and complaints."""

import csv
from pathlib import Path
from typing import cast
from uuid import uuid4

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from .carrier import ParcelEvent, is_signed
from .harness import AgentError, Handler, Route, Runtime, TurnRequest
from .orders import ORDERS, Order
from .own_capabilities import OwnSettings

PAGE = Path(__file__).with_name("import.html")


async def move_parcel(request: Request, runtime: Runtime) -> Response:
    """Take an event of the carrier, which has no token: it signs the body."""
    body = await request.body()
    settings = cast(OwnSettings, runtime.settings)
    if not is_signed(body, settings.carrier_secret, request.headers.get("X-Signature", "")):
        raise AgentError("unauthorized", "The signature is not that of the carrier.")
    try:
        event = ParcelEvent.model_validate_json(body)
    except ValidationError:
        raise AgentError("invalid_request", "This is no event of a parcel.") from None
    await ORDERS.move(event.order, event.state)
    return Response(status_code=204)


async def show_page(request: Request, runtime: Runtime) -> Response:
    """Return the page with which the staff import orders."""
    return FileResponse(PAGE)


async def import_orders(request: Request, runtime: Runtime) -> Response:
    """Add the orders of a CSV file."""
    if request.state.actor not in cast(OwnSettings, runtime.settings).staff:
        raise AgentError("session_forbidden", "Only the staff import orders.")
    try:
        rows = csv.DictReader((await request.body()).decode().splitlines(), strict=True)
        orders = [Order(**row) for row in rows]
    except (TypeError, ValueError, csv.Error):
        what = "Send a CSV file with the columns id, customer, item, price and state."
        raise AgentError("invalid_request", what) from None
    return JSONResponse({"added": await ORDERS.add(orders)})


class Complaint(BaseModel):
    """The facts of a complaint."""

    order_id: str | None = Field(description="the number of the order, if the text has one")
    wants_refund: bool
    summary: str = Field(description="the complaint in one sentence")


async def read_complaint(request: Request, runtime: Runtime) -> Response:
    """Return the facts of a complaint, such as a mail: a turn that ends in a value."""
    mail = (await request.body()).decode(errors="replace")
    session, actor = f"complaint-{uuid4()}", request.state.actor
    result = await runtime.spawn(TurnRequest(session, mail, actor=actor, output=Complaint))
    await runtime.sessions.end(session, actor)
    return JSONResponse(cast(Complaint, result.output).model_dump())


ROUTES: dict[str, Handler | Route] = {
    "POST /parcels": Route(move_parcel, public=True),
    "GET /import": Route(show_page, public=True),
    "POST /import": Route(import_orders, types=("text/csv",), max_bytes=100_000),
    "POST /complaints": Route(read_complaint, types=("text/plain",)),
}
