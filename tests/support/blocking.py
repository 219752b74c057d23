"""A route of an owner that blocks the event loop for longer than a call may take."""

import subprocess
from dataclasses import replace
from pathlib import Path

from tests.conformance.targets import Target

PYTHON = """
import time
import my_agent.routes
from starlette.responses import PlainTextResponse
async def block(request, runtime):
    time.sleep({seconds})
    return PlainTextResponse('blocked')
my_agent.routes.ROUTES['GET /block'] = block
from my_agent.main import cli; cli()
"""
NODE = (
    "const held = new Int32Array(new SharedArrayBuffer(4));"
    "const block = (_, to) => {{ Atomics.wait(held, 0, 0, {seconds} * 1000); to.end('blocked') }};"
    "(await import('{routes}')).ROUTES['GET /block'] = block"
)


def blocking(target: Target, seconds: float) -> Target:
    """The target with `GET /block`, which blocks for so long."""

    def command(project: Path) -> list[str]:
        if not target.is_node:
            code = PYTHON.format(seconds=seconds)
            return [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"]
        serve = target.command(project)
        code = NODE.format(seconds=seconds, routes=(project / "src" / "routes.ts").as_uri())
        return [serve[0], "--import", f"data:text/javascript,{code}", *serve[1:]]

    return replace(target, command=command, start=subprocess.Popen)
