"""What an instrumented image sends, started by its own command, with the distribution of AWS."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hooks.variants import TARGETS
from tests.conformance.chat import CANARY
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.deploy.cloudformation import Stack
from tests.installed import NODE, NPM, clean_environment, rendered, uv
from tests.renders.test_tracing import Receiver, body_of
from tests.stores.servers import wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_sends_traces_and_metrics(target: str, tmp_path: Path) -> None:
    project = shutil.copytree(
        rendered(f"{target}+tracing", deploy="agentcore"), tmp_path / "project"
    )
    is_python = "python" in target
    install = [*uv(), "sync", "-q"] if is_python else [*NPM, "install", "--silent"]
    subprocess.run(install, cwd=project, env=clean_environment(), check=True)
    command = json.loads(
        re.findall(r"^CMD (.*)", (project / "Dockerfile").read_text().replace("\\\n", ""), re.M)[0]
    )
    path = project / ".venv" / "bin" if is_python else NODE.parent
    program = [str(path / command[0]), *command[1:]]
    receiver, calls, leaks = Receiver(), Counter[str](), list[bytes]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls[self.path] += 1
            body = body_of(self)
            if self.path == "/v1/traces":
                receiver.take(body)
            if CANARY in str(body):
                leaks.append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    stack = Stack(project, Image="111122223333.dkr.ecr.us-east-1.amazonaws.com/my-agent:1")
    given = {name: it for name, it in stack.environment.items() if name != "MODEL"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        run = Target(target, target, lambda _: program, lambda _: {}, start=subprocess.Popen)
        variables: dict[str, int | str] = {
            **given,
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            # AgentCore sends to CloudWatch, whose places differ from this one.
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{http.server_port}",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": 200,
            "OTEL_METRIC_EXPORT_TIMEOUT": 200,
            "OTEL_BSP_SCHEDULE_DELAY": 50,
        }
        server = Server(run, project, None, variables)
        try:
            headers = [("X-Amzn-Trace-Id", XRAY)]
            headers.append(("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", "first"))
            assert server.get("/ping").status == 200
            assert server.post({"prompt": f"Hello, {CANARY}."}, headers).status == 200
            turn, below = receiver.turn("first")
            wait_for("metrics", lambda: calls["/v1/metrics"] > 0)
        finally:
            server.stop()
            http.shutdown()
    assert turn.trace == "5759e988bd862e3fe1be46a994272793"
    assert "invoke_agent my-agent" in {one.name for one in below}
    assert not leaks
    assert not [one for one in receiver.spans if "/ping" in one.text]
    ids = [one.id for one in receiver.spans]
    assert len(ids) == len({*ids})
