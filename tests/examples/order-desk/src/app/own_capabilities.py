"""What the order desk has beside its tools: settings, the order book, a job, and metrics."""

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from .database import Pool
from .harness import (
    Capability,
    CoreSettings,
    Handler,
    Route,
    Runtime,
    Turn,
    boolean,
    integer,
    secret,
    string,
    string_list,
)
from .orders import ORDERS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    """The settings of the shop; `orders_db` is the variable ORDERS_DB."""

    carrier_secret: str = secret(required=True)  # signs the events of the carrier
    orders_db: str = string(".+", "the path of a file", "orders.db")
    staff: tuple[str, ...] = string_list("[A-Za-z0-9]+", "a list like carol,dave")  # import orders
    reminders: bool = boolean(True)
    reminder_seconds: int = integer(60, 1, 86_400)


class Shop(Capability):
    """Opens the order book with the process, and reminds the packers of orders that wait."""

    settings: OwnSettings
    pool: Pool
    job: asyncio.Task[None]

    async def open(self, runtime: Runtime) -> None:
        self.pool = Pool(self.settings.orders_db)
        await ORDERS.open(self.pool)
        self.job = asyncio.create_task(self.remind())

    async def close(self) -> None:
        self.job.cancel()
        await asyncio.wait([self.job])
        await self.pool.close()

    async def remind(self) -> None:
        """Remind the packers every minute, in one process of all replicas."""
        seconds = self.settings.reminder_seconds
        while self.settings.reminders:
            try:
                if await ORDERS.claim("remind", time.time(), seconds):
                    log.info("%d orders wait for the packers", await ORDERS.remind())
            except Exception:  # the next minute is another try
                log.exception("the packers were not reminded")
            await asyncio.sleep(1)


class Outcomes(Capability):
    """Counts how turns ended, for Prometheus."""

    turns: Counter[str]

    async def open(self, runtime: Runtime) -> None:
        self.turns = Counter()

    async def ended(self, turn: Turn) -> None:
        self.turns[turn.outcome] += 1

    def routes(self) -> dict[str, Handler | Route]:
        return {"GET /outcomes": self.show}

    async def show(self, request: Request, runtime: Runtime) -> Response:
        """Return a line for each outcome."""
        lines = [f'turns_total{{outcome="{name}"}} {self.turns[name]}\n' for name in self.turns]
        return PlainTextResponse("".join(lines))


OWN_CAPABILITIES: list[type[Capability]] = [Shop, Outcomes]
