"""The webhook of docs/webhooks.md: it answers Slack at once, and sends the reply later."""

import hashlib
import hmac
import http.client
import http.server
import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from hooks.variants import TARGETS
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold, Refuse
from tests.conformance.targets import chat_completions, converse
from tests.installed import (
    NODE,
    check,
    clean_environment,
    environment,
    link_environment,
    rendered,
    types_known,
)
from tests.stores import forks
from tests.stores.servers import wait_for

pytestmark = pytest.mark.slow
USUAL = {"strands-python", "vercel-typescript"}
ROWS = [pytest.param(name, marks=[] if name in USUAL else [pytest.mark.full]) for name in TARGETS]
BLOCK = re.compile(r"```(?:python|ts)\n(.*?)```", re.DOTALL)
SECRET = "secret-of-slack"
# The address of Slack is fixed: these send its requests to a stand-in.
PYTHON = """
import httpx
send = httpx.AsyncClient.send
async def moved(self, request, **options):
    assert request.headers['host'] == 'hooks.slack.com'
    request.url = httpx.URL('{origin}' + request.url.path)
    return await send(self, request, **options)
httpx.AsyncClient.send = moved
from my_agent.main import cli
cli()
"""
TYPESCRIPT = (
    "const f=fetch;"
    "globalThis.fetch=(u,o)=>f(String(u).replace('https://hooks.slack.com','{origin}'),o)"
)


@dataclass
class Slack:
    """A stand-in of Slack: it keeps what is sent to its response URLs."""

    origin: str = ""
    sent: list[tuple[str, str]] = field(default_factory=list)  # the path and the text


@pytest.fixture
def slack() -> Iterator[Slack]:
    slack = Slack()

    class Hooks(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            slack.sent.append((self.path, body.pop("text")))
            assert body == {}
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hooks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        slack.origin = f"http://127.0.0.1:{server.server_port}"
        yield slack
        server.shutdown()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture(scope="module", params=ROWS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the files of docs/webhooks.md."""
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    text = (project / "docs" / "webhooks.md").read_text()
    blocks = BLOCK.findall(text)
    files = re.findall(r"`(src/\S+(?:\.py|\.ts))`", text)
    for file, block in zip(files, blocks, strict=True):
        (project / file).write_text(block)
    return project


@dataclass
class Agent:
    """A served project."""

    process: subprocess.Popen[str]
    port: int

    def command(
        self,
        text: str,
        id: str,
        *,
        age: int = 0,
        secret: str = SECRET,
        url: str = "https://hooks.slack.com/commands/",
        after: str = "",
    ) -> tuple[int, str]:
        """Send a command as Slack does; return the status, and the text or the error's type."""
        fields = {"text": text, "trigger_id": id, "user_id": "U1", "channel_id": "C1"}
        body = urlencode({**fields, "response_url": url + id})
        sent_at = str(int(time.time()) - age)
        signed = f"v0:{sent_at}:{body}".encode()
        signature = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Slack-Request-Timestamp": sent_at,
            "X-Slack-Signature": f"v0={signature}",
        }
        return self.post(body + after, headers)

    def post(self, body: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3)  # as in Slack
        connection.request("POST", "/slack", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer["text"] if "text" in answer else answer["error"]["type"]


@pytest.fixture
def agent(project: Path, slack: Slack, provider: Provider) -> Iterator[Agent]:
    if (project / "package.json").exists():
        moved = f"data:text/javascript,{TYPESCRIPT.replace('{origin}', slack.origin)}"
        command = [str(NODE), "--import", moved, "src/main.ts", "serve"]
    else:
        code = PYTHON.replace("{origin}", slack.origin)
        command = [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"]
    is_bedrock = "AWS_REGION" in (project / ".env.example").read_text()
    model = (converse if is_bedrock else chat_completions)(provider.origin)
    own = {"SLACK_SIGNING_SECRET": SECRET, "API_TOKEN": "secret-of-the-api", "PORT": "0"}
    process = subprocess.Popen(
        command,
        cwd=project,
        env={**clean_environment(), **model, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout
        log = []
        for line in process.stdout:
            log.append(line)
            if "Listening on" in line:
                yield Agent(process, int(re.findall(r"\d+", line)[-1]))
                break
        else:
            raise AssertionError("".join(log))
    finally:
        process.kill()
        process.wait()


def test_a_command_is_answered_at_once_and_its_reply_is_sent_later(
    agent: Agent, slack: Slack, provider: Provider, gate: threading.Event
) -> None:
    provider.script("One.", ["Slow, ", Hold(gate), "but sure."])
    assert agent.command("One.", "1.1") == (200, "One moment.")
    provider.wait("the call", lambda: bool(provider.calls_for("One.")))
    assert agent.command("One.", "1.1") == (200, "One moment.")
    assert slack.sent == []
    gate.set()
    wait_for("the reply", lambda: bool(slack.sent))
    assert agent.command("One.", "1.1") == (200, "One moment.")
    assert agent.command("Two.", "1.2") == (200, "One moment.")
    wait_for("the second reply", lambda: len(slack.sent) > 1)
    sent = [("/commands/1.1", "Slow, but sure."), ("/commands/1.2", "You said: Two.")]
    assert slack.sent == sent
    assert len(provider.calls_for("One.")) == 1
    assert [text for _, text in provider.calls_for("Two.")[0].history][:1] == ["One."]


def test_the_error_of_a_turn_is_sent(agent: Agent, slack: Slack, provider: Provider) -> None:
    provider.script("Refused.", [Refuse(400)])
    assert agent.command("Refused.", "2.1") == (200, "One moment.")
    assert agent.command(" ", "2.2") == (200, "One moment.")
    wait_for("the errors", lambda: len(slack.sent) == 2)
    errors = dict(slack.sent)
    assert errors["/commands/2.1"] == "The model failed; this turn was not saved."
    assert errors["/commands/2.2"].startswith("Send a prompt that is not blank")


def test_forged_old_and_foreign_requests_run_no_turn(
    agent: Agent, slack: Slack, provider: Provider
) -> None:
    refused = (401, "unauthorized")
    assert agent.command("One.", "3.1", secret="another") == refused
    assert agent.command("One.", "3.2", after="&text=Two.") == refused
    assert agent.command("One.", "3.3", age=301) == refused
    assert agent.command("One.", "3.4", age=-301) == refused
    assert agent.post("text=One.", {}) == refused
    for url in (
        "http://hooks.slack.com/",
        "https://hooks.slack.com.example/",
        "https://hooks.slack.com@127.0.0.1/",
        "https://127.0.0.1/hooks.slack.com/",
        "",
    ):
        assert agent.command("One.", "3.5", url=url) == (400, "invalid_request")
    assert (slack.sent, provider.calls) == ([], [])


def test_a_shutdown_waits_for_the_reply(
    agent: Agent, slack: Slack, provider: Provider, gate: threading.Event
) -> None:
    provider.script("One.", ["Slow, ", Hold(gate), "but sure."])
    assert agent.command("One.", "4.1") == (200, "One moment.")
    provider.wait("the call", lambda: bool(provider.calls_for("One.")))
    agent.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    gate.set()
    assert agent.process.wait(timeout=30) == 0
    assert slack.sent == [("/commands/4.1", "Slow, but sure.")]


@pytest.mark.full
def test_the_code_passes_the_linters_of_the_project(project: Path) -> None:
    if (project / "package.json").exists():
        program = [str(NODE)]
        tools = [
            ["node_modules/oxlint/bin/oxlint"],
            ["node_modules/prettier/bin/prettier.cjs", "--check", "src"],
            ["node_modules/typescript/bin/tsc"],
        ]
    else:
        program = [str(project / ".venv" / "bin" / "python"), "-m"]
        tools = [["ruff", "check", "."], ["ruff", "format", "--check", "."]]
        with types_known(project.parent.name.rstrip("0123456789")) as options:
            check(project, *program, "mypy", *options)
    for tool in tools:
        check(project, *program, *tool)


def test_a_missing_secret_is_reported(project: Path) -> None:
    is_node = (project / "package.json").exists()
    own = [str(NODE), "src/main.ts"] if is_node else [str(project / ".venv" / "bin" / "my-agent")]
    done = forks.run([*own, "check"], project, clean_environment())
    assert "SLACK_SIGNING_SECRET" in done.stdout
    assert done.returncode == 1
