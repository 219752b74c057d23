"""The capability that reports running and waiting turns to an autoscaler."""

from starlette.requests import Request
from starlette.responses import Response

from ..capability import Capability, Routes
from ..runtime import Runtime

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Capability):
    """Adds GET /metrics in Prometheus text format, without a token and without personal data."""

    def public_routes(self) -> Routes:
        return {"GET /metrics": _metrics}


async def _metrics(_: Request, runtime: Runtime) -> Response:
    lines = [
        "# HELP agent_turns Turns that run or wait in this process.",
        "# TYPE agent_turns gauge",
        f"agent_turns {len(runtime.turns.tasks)}",
    ]
    return Response("".join(f"{line}\n" for line in lines), headers={"Content-Type": TYPE})
