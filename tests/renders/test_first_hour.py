"""What an owner does first, by README and docs/: a tool, a model, a route; and what errors say."""

import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hooks.variants import TARGETS
from tests.conformance.client import JSON, KEY, SESSION, USER, Exchange
from tests.conformance.provider import Provider
from tests.conformance.steps import HANG, Call, Refuse
from tests.conformance.targets import TARGETS as CONFORMANCE
from tests.conformance.targets import VENDOR_TARGETS, Target, chat_completions, converse
from tests.conformance.wires import DETAIL
from tests.conftest import ROOT
from tests.installed import (
    NODE,
    NPM,
    clean_environment,
    environment,
    installed,
    link_environment,
    rendered,
    uv,
)
from tests.stores import forks

pytestmark = pytest.mark.slow
ORDERS = {"ORDERS_URL": "http://orders.example"}  # what the capability of docs/ requires
BLOCK = re.compile(r"```(?:python|ts)\n(.*?)```", re.DOTALL)


def command_of(project: Path, *arguments: str) -> list[str]:
    if (project / "package.json").exists():
        return [str(NODE), "src/main.ts", *arguments]
    return [str(project / ".venv" / "bin" / "my-agent"), *arguments]


def run(project: Path, *arguments: str, typed: str = "", **settings: str) -> str:
    command = command_of(project, *arguments)
    environment = {**clean_environment(), **ORDERS, **settings}
    return forks.run(command, project, environment, typed=typed).stdout


# The texts whose blocks are files, and these files, in their order.
TEXTS = ("README.md", "docs/tools.md", "docs/routes.md", "docs/capabilities.md")
FILES = {
    "python": (
        "src/my_agent/orders.py",
        "tests/test_orders.py",
        "src/my_agent/payments.py",
        "src/my_agent/summary.py",
        "src/my_agent/handbook.py",
        "src/my_agent/version.py",
        "tests/test_version.py",
        "src/my_agent/own_capabilities.py",
    ),
    "typescript": (
        "src/orders.ts",
        "tests/orders.test.ts",
        "src/payments.ts",
        "src/summary.ts",
        "src/handbook.ts",
        "src/version.ts",
        "tests/version.test.ts",
        "src/routes.ts",
        "src/base_path.ts",
        "src/order.ts",
        "src/own_capabilities.ts",
        "src/choices.ts",
    ),
}


def paste(project: Path, names: Iterable[str]) -> None:
    """Write blocks of the texts, word by word, to the files that these name."""
    texts = [(project / name).read_text() for name in TEXTS]
    language = "typescript" if (project / "package.json").exists() else "python"
    if language == "python":  # blocks in later sections of the last two are excerpts
        texts[2:] = [text.partition("\n## ")[0] for text in texts[2:]]
    text = "".join(texts)
    blocks = dict(zip(FILES[language], BLOCK.findall(text), strict=True))
    for file in FILES[language]:
        name = Path(file).name.partition(".")[0]
        if name in names:
            assert f"`{file}`" in text
            (project / file).write_text(blocks[file])


def edit(path: Path, listed: str, added: dict[str, str], last: str) -> None:
    """Import names in a file, and list them, as README and docs/ say."""
    if path.suffix == ".py":
        lines = [f"from .{module} import {name}\n" for name, module in added.items()]
    else:
        lines = [f"import {{ {name} }} from './{module}.ts'\n" for name, module in added.items()]
    text = path.read_text()
    assert text.count(last) == 1
    gap = "" if ("from ." in last or "./" in last) else "\n"
    text = text.replace(last, last + gap + "".join(lines))
    empty = re.compile(r"(?m)^((?:export const )?(?:TOOLS|ROUTES).*)[\]}]$")
    (line,) = [found[0] for found in empty.finditer(text)]
    end = line[-1]
    separator = "" if line[-2] in "{[" else ", "
    filled = f"{line[:-1].rstrip()}{separator}{listed}{end}"
    path.write_text(text.replace(line, filled))


def add_route(project: Path, route: str) -> None:
    """Paste the route of docs/ and its test, and list it."""
    paste(project, ["version", "test_version"])
    if (project / "package.json").exists():
        last = "import type { Routes } from './harness/index.ts'\n"
        edit(project / "src" / "routes.ts", f"'{route}': version", {"version": "version"}, last)
    else:
        routes = project / "src" / "my_agent" / "routes.py"
        last = "from .harness import Handler, Route\n"
        edit(routes, f'"{route}": version', {"version": "version"}, last)


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


def provider_of(project: Path) -> Callable[[str], dict[str, str]]:
    """What points the model of a project at a provider's origin: by default that is Bedrock's."""
    is_bedrock = "AWS_REGION" in (project / ".env.example").read_text()
    return converse if is_bedrock else chat_completions


@pytest.fixture(scope="module", params=TARGETS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose owner has done all that README and docs/ propose, word by word."""
    target = request.param
    project = tmp_path_factory.mktemp(target) / "my-agent"
    shutil.copytree(rendered(target), project)
    link_environment(project, environment(target))
    python = (project / "src" / "my_agent" / "agent.py").exists()
    agent = project / "src" / ("my_agent/agent.py" if python else "agent.ts")
    added = {"read_handbook": "handbook", "lookup_order": "orders"}
    added |= {"pay_my_order": "payments", "summarize": "summary"}
    listed = ", ".join(added)
    if not python:
        added = {"lookupOrder": "orders", "payMyOrder": "payments", "summarize": "summary"}
        added["readHandbook"] = "handbook"
        listed = ", ".join(added)
        if target == "vercel-typescript":
            named = "lookup_order: lookupOrder, pay_my_order: payMyOrder, summarize"
            listed = f"{named}, read_handbook: readHandbook"
    more = ("own_capabilities", "choices", "base_path", "order")
    paste(project, [*added.values(), "test_orders", *more])
    framework = {
        "strands-python": "from strands import tool\n",
        "vercel-python": "import ai\n",
    }
    edit(agent, listed, added, framework.get(target, "import { z } from 'zod'\n"))
    add_route(project, "GET /version")
    if not python:  # four tools are longer than a line
        prettier = project / "node_modules" / "prettier" / "bin" / "prettier.cjs"
        files = [agent, agent.with_stem("routes")]
        subprocess.run([NODE, prettier, "--write", *files], cwd=project, check=True)
    return project


def test_the_tools_and_the_second_model_of_the_docs_answer(
    project: Path, provider: Provider
) -> None:
    typed = 'use lookup_order: 7\nuse lookup_order: {"order_id": "8"}\nuse summarize: Long.\n'
    variables = {**provider_of(project)(provider.origin), "MODEL": ""}
    said = run(project, "chat", typed=typed + 'use lookup_order: {"id": 9}\n', **variables)
    assert provider.calls == [], "MODEL is not set"
    assert "The tool answered: Order 7 has been sent." in said
    assert "The tool answered: Order 8 has been sent." in said
    assert "The tool answered: I am the offline model, not a language model: I repeat" in said
    assert 'Now you said: "Long."' in said
    wrong = said.rpartition("The tool answered: ")[2]
    assert "order_id" in wrong
    assert re.search("required|expected", wrong, re.IGNORECASE)


def test_a_tool_of_the_docs_shows_its_progress_and_its_source(project: Path) -> None:
    with serving(project) as (port, _):
        exchange = Exchange(("127.0.0.1", port))
        exchange.send("POST", "/invocations", {}, {"prompt": "use read_handbook: travel"})
        events = exchange.reply().events
    assert ("data", {"name": "progress", "value": {"page": "travel"}}) in events
    assert ("source", {"url": "https://handbook.example/travel", "title": "travel"}) in events


def test_a_payment_of_the_docs_is_the_actors_and_the_same_if_its_turn_is_repeated(
    project: Path,
) -> None:
    typed = "use pay_my_order: 7\nuse pay_my_order: 7\n/retry\n"
    said = run(project, "chat", "--actor", "ada", typed=typed)
    assert said.count("The tool answered: ada has paid order 7.") == 3
    assert len(set(re.findall("Idempotency key: (.*)", said))) == 3, "no turn was sent again"
    sent = {"prompt": "use pay_my_order: 7"}
    headers = {SESSION: "s", USER: "ada", KEY: "k", **JSON}
    keys = []
    for _ in range(2):  # the first is lost with its process, before anything was kept
        with serving(project) as (port, _):
            exchange = Exchange(("127.0.0.1", port))
            exchange.send("POST", "/invocations", headers, sent)
            keys += re.findall("Idempotency key: (.*)", exchange.reply().text)
    assert keys == ["s 1 k 7."] * 2


def test_the_second_model_of_the_docs_ends_with_its_turn_and_is_not_in_the_log(
    project: Path, provider: Provider
) -> None:
    def start(prompt: str, text: str) -> Exchange:
        provider.script(prompt, [Call("summarize", {"text": text})])
        exchange = Exchange(("127.0.0.1", port))
        exchange.send("POST", "/invocations", {}, {"prompt": prompt})
        return exchange

    provider.script("Refused.", [Refuse(400)])
    provider.script("Endless.", ["Well, ", HANG])
    settings = {**provider_of(project)(provider.origin), "MODEL": "test-model"}
    with serving(project, **settings) as (port, log):
        for prompt, text, result in (("1", "Long.", "You said: Long."), ("2", "Refused.", "")):
            assert start(prompt, text).reply().text == f"You said: {prompt}"
            (told,) = [entry[1] for entry in provider.calls[-1].history if entry[0] == "result"]
            assert result in told
        turn = start("3", "Endless.")
        provider.wait("the call", lambda: bool(provider.calls_for("Endless.")))
        (call,) = provider.calls_for("Endless.")
        while call.chunks == 0:
            time.sleep(0.01)
        turn.leave()
        provider.wait("its end", lambda: call.outcome != "running")
        assert call.outcome == "gone"
    assert "tool summarize: " in log[0]
    assert DETAIL not in log[0]
    assert "Refused." not in log[0]


@contextmanager
def serving(project: Path, **settings: str) -> Iterator[tuple[int, list[str]]]:
    """Serve a project, and give its port and its log, which is there at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = forks.start(
        command_of(project, "serve"),
        cwd=project,
        env={**clean_environment(), **ORDERS, "PORT": str(port), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout
    log: list[str] = []
    try:
        assert any(f"Listening on http://127.0.0.1:{port}" in line for line in server.stdout)
        yield port, log
    finally:
        server.kill()
        server.wait()
        log.append(server.stdout.read())


def test_the_route_of_the_docs_is_served_and_guarded(project: Path) -> None:
    with serving(project, API_TOKEN="secret") as (port, _):
        token = {"Authorization": "Bearer secret"}
        assert ask(port, "GET", token) == (200, "1.0")
        assert ask(port, "GET", {})[0] == 401
        assert ask(port, "GET", {**token, "Host": "evil.example"})[0] == 403
        assert ask(port, "DELETE", token)[0] == 405


def test_the_capability_of_the_docs_is_opened_and_asked_before_each_turn(project: Path) -> None:
    wrong = run(project, "check", ORDERS_URL="ftp://orders.example")
    assert "SET-ORDERS_URL ORDERS_URL is 'ftp://orders.example': use an http address." in wrong
    assert "SET-ORDERS_URL ORDERS_URL is not set" in run(project, "check", ORDERS_URL="")
    with orders_service() as address:
        orders = {"ORDERS_URL": address}
        mallory = run(project, "chat", "--actor", "mallory", typed="Hello.\n", **orders)
        assert "This actor is not allowed to place orders." in mallory
        found = run(project, "chat", typed='use find_order: {"order_id": "7"}\n', **orders)
        assert "The tool answered: order 7 is on its way" in found
        with serving(project, **orders) as (port, _):
            assert say(port, {}) == 200
            assert say(port, {"X-Amzn-Bedrock-AgentCore-Runtime-User-Id": "mallory"}) == 403


@contextmanager
def orders_service() -> Iterator[str]:
    """The address of a service that has an order 7 and no other."""

    class Orders(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/orders/7" else 404)
            self.end_headers()
            self.wfile.write(b"order 7 is on its way")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Orders) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_tests_of_the_template_pass_with_the_capability_of_the_docs(project: Path) -> None:
    """They start without its setting and send no actor: an owner changes none of them."""
    if (project / "package.json").exists():
        files = ["tests/harness/server.test.ts", "tests/orders.test.ts", "tests/version.test.ts"]
        command = [str(NODE), "--test", *files]
    else:
        files = ["tests/harness/test_server.py", "tests/test_orders.py", "tests/test_version.py"]
        command = [".venv/bin/python", "-m", "pytest", "-q", *files]
    result = subprocess.run(
        command, cwd=project, env=clean_environment() | ORDERS, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def say(port: int, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/invocations", b'{"prompt": "Hello."}', headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize("target", ["vercel-python", "strands-typescript"])
def test_an_own_route_is_served_in_place_of_the_page(target: str, tmp_path: Path) -> None:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(f"{target}+ui"), project)
    link_environment(project, environment(target))
    add_route(project, "GET /")
    command = command_of(project, "serve", "--ui")
    variables = {**clean_environment(), "PORT": "0"}
    server = forks.start(command, cwd=project, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        found = (re.search(r"Listening on http://127.0.0.1:(\d+)", line) for line in server.stdout)
        port = int(next(match[1] for match in found if match))
        assert ask(port, "GET", {}, "/") == (200, "1.0")
    finally:
        server.kill()
        server.wait()


def test_the_client_of_the_docs_gets_a_reply(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = (project / "docs" / "http.md").read_text().partition("\n## A client\n")[2]
    code = textwrap.dedent(client).replace("8080", str(port))
    server = forks.start(
        command_of(project, "serve"),
        cwd=project,
        env={**clean_environment(), **ORDERS, "PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout
        assert any(f"Listening on http://127.0.0.1:{port}" in line for line in server.stdout)
        is_node = (project / "package.json").exists()
        command = [str(NODE), "--input-type=module", "-e"] if is_node else [sys.executable, "-c"]
        said = subprocess.run([*command, code], capture_output=True, text=True, check=False)
        assert 'Now you said: "Hello"' in said.stdout, said.stderr
    finally:
        server.kill()
        server.wait()


def ask(port: int, method: str, headers: dict[str, str], path: str = "/version") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_code_in_the_docs_passes_the_checks(project: Path) -> None:
    if (project / "package.json").exists():
        commands = [[*NPM, "run", "lint"]]
    else:
        target = "strands-python" if "strands" in (project / "pyproject.toml").read_text() else ""
        cache = environment(target or "vercel-python") / ".mypy_cache"
        commands = [[".venv/bin/python", "-m", "mypy", "--cache-dir", str(cache)]]
        ruff = str(cache.with_name(".venv") / "bin" / "ruff")
        commands += [[ruff, "check", "--no-cache"], [ruff, "format", "--check", "--no-cache"]]
    for command in commands:
        result = subprocess.run(
            command, cwd=project, env=clean_environment(), capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "target",
    [*CONFORMANCE, *(pytest.param(t, marks=pytest.mark.full) for t in VENDOR_TARGETS)],
    ids=lambda target: target.name,
)
def test_chat_suggests_a_remedy_for_a_provider_failure(target: Target) -> None:
    provider = Provider()
    statuses = {"refused": 401, "absent": 404, "limited": 429, "overloaded": 529, "broken": 500}
    for prompt, status in statuses.items():
        provider.script(prompt, [Refuse(status)])
    project = installed(target.variant)
    command = [part for part in target.command(project) if part != "serve"]
    variables = target.provider(provider.origin)
    environment = {"PATH": os.environ["PATH"], **variables}
    typed = "".join(f"{prompt}\n" for prompt in statuses)
    result = run_chat([*command, "chat"], project.parent, environment, typed)
    provider.close()
    lines = re.findall(r".*: check .*|.*, retry later\.", result.stdout)
    key = next((name for name in variables if name.endswith("_API_KEY")), "the AWS credentials")
    assert len(lines) == len(statuses), result.stdout
    assert lines[0].endswith(f"HTTP 401): check {key}.")
    assert "HTTP 404): check MODEL and " in lines[1]
    assert lines[2].endswith("HTTP 429): the provider's limit is reached, retry later.")
    assert lines[3].endswith("HTTP 529): the provider failed or is overloaded, retry later.")
    assert lines[4].endswith("HTTP 500): the provider failed or is overloaded, retry later.")
    # The port stays taken: another test's server could listen there.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        variables = target.provider(f"http://127.0.0.1:{nobody.getsockname()[1]}")
        environment = {"PATH": os.environ["PATH"], **variables}
        gone = run_chat([*command, "chat"], project.parent, environment, "Hello.\n")
    assert re.search(": check .* and the network\\.", gone.stdout), gone.stdout


def run_chat(
    command: list[str], folder: Path, environment: dict[str, str], typed: str
) -> "subprocess.CompletedProcess[str]":
    if "-c" not in command:
        return forks.run(command, folder, environment, typed=typed)
    # The gateway has no setting for its address: a script sets it.
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# How a tool asks for an approval, by target: what to replace in `agent`.
ASKS = {
    "strands-python": {
        "import tool": "import ToolContext, tool",
        "@tool": "@tool(context=True)",
        "(text: str)": "(text: str, tool_context: ToolContext)",
        "    return": "    tool_context.interrupt('approve')\n    return",
    },
    "vercel-python": {"@ai.tool\n": "@ai.tool(require_approval=True)\n"},
    "strands-typescript": {
        "callback: ({ text }) =>": "callback: ({ text }, context) => context?.interrupt('?') ??",
    },
    "vercel-typescript": {"  execute:": "  needsApproval: true,\n  execute:"},
}


@pytest.mark.parametrize(
    "target",
    [pytest.param(t, marks=[] if t == "vercel-python" else pytest.mark.full) for t in TARGETS],
)
def test_a_tool_that_asks_for_approval_fails_its_turn_at_once(target: str, tmp_path: Path) -> None:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(target), project)
    link_environment(project, environment(target))
    agent = project / ("src/my_agent/agent.py" if "python" in target else "src/agent.ts")
    for old, new in ASKS[target].items():
        assert old in agent.read_text()
        agent.write_text(agent.read_text().replace(old, new))
    typed = "use word_count: a b\nHello.\n"
    said = run(project, "chat", typed=typed, TURN_TIMEOUT_SECONDS="30")
    refused, _, after = said.partition('you said: "Hello."')
    assert "this turn was not saved" in refused
    assert "timed out" not in refused
    assert after, "the session goes on"
    if target == "vercel-python":
        assert "The tool word_count needs approval" in refused


@pytest.mark.parametrize("target", TARGETS)
def test_check_and_serve_refuse_the_same_settings(target: str) -> None:
    project = installed(target)
    settings = {"HOST": "192.0.2.1", "PORT": "0"}  # an address of documentation
    said = run(project, "check", **settings)
    assert re.search(r"SET-HOST Cannot listen on HOST 192\.0\.2\.1, PORT 0: ", said), said
    assert "1 errors" in said
    refused = re.search(r"Cannot listen on .*", said)
    assert refused
    assert refused[0] in run(project, "serve", **settings)


@pytest.fixture(scope="module", params=TARGETS)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the last lines of each agent replaced; the tests change it again."""
    project = tmp_path_factory.mktemp(request.param) / "my-agent"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param))
    return project


MEANINGLESS = """\ufeffPORT=70000
# A comment = 'with
export MAX_TURNS="none"  # a comment

no sign
MAX STEPS=3
HOST
QUOTED="of two
lines"
AFTER="a" b
HISTORY_MESSAGES=0
"""


def test_check_reads_env_from_a_subfolder_and_names_the_lines_that_set_nothing(own: Path) -> None:
    (own / ".env").write_text(MEANINGLESS, "utf-8")
    command = [*command_of(own, "check")]
    if "node" in command[0]:
        command[1] = "main.ts"
    result = forks.run(command, own / "src", clean_environment())
    (own / ".env").unlink()
    said = result.stdout
    for name in ("PORT", "MAX_TURNS", "HISTORY_MESSAGES"):
        assert f"environment:0 SET-{name} " in said
    lines = re.findall(r"(?m)^\.env:(\d+) SET-ENV-LINE ", said)
    assert lines == ["5", "6", "7", "10"]
    assert "3 errors, 4 warnings" in said
    assert "no sign" not in said


@pytest.mark.parametrize("name", ["SYSTEM_PROMPT", "TOOLS"])
def test_check_names_missing_attributes_of_the_agent(own: Path, name: str) -> None:
    path = own / ("src/agent.ts" if (own / "package.json").exists() else "src/my_agent/agent.py")
    text = path.read_text()
    path.write_text(text.replace(name, f"MY_{name}"))
    # Python would take the bytecode of another text of this size and second.
    said = run(own, "check", PYTHONDONTWRITEBYTECODE="1")
    path.write_text(text)
    assert re.search(rf"(?m)^{path.relative_to(own)}:0 AGENT {name} is missing", said), said
    assert said.endswith("1 errors, 0 warnings\n")


def test_check_names_tools_without_a_description_and_of_one_name(own: Path) -> None:
    is_node = (own / "package.json").exists()
    path = own / ("src/agent.ts" if is_node else "src/my_agent/agent.py")
    text = path.read_text()
    bare = re.sub(r'    """Count.*\n|  description: .*\n', "", text)
    same = re.sub(r"(?<=\[)(word_count|wordCount)(?=\])", r"\1, \1", bare)
    path.write_text(same)
    said = run(own, "check", PYTHONDONTWRITEBYTECODE="1")
    path.write_text(text)
    assert bare != text
    assert "TOOL Tool word_count: it has no description" in said
    if same != bare:  # in the AI SDK for TypeScript, two tools of a name are no TypeScript
        assert (
            said.count("TOOL Tool word_count: another tool has this name: rename one of them.") == 1
        )


SOCKS = [
    pytest.param(
        f"{target}+openai-compatible", marks=[] if "strands" in target else pytest.mark.full
    )
    for target in TARGETS
    if target.endswith("-python")
]


@pytest.mark.full
@pytest.mark.parametrize("variant", SOCKS)
def test_a_proxy_that_cannot_be_used_is_one_line(variant: str, tmp_path: Path) -> None:
    """Node uses proxies only with NODE_USE_ENV_PROXY, and SOCKS without another package."""
    command = str(installed(variant) / ".venv" / "bin" / "my-agent")
    variables = {**clean_environment(), "OPENAI_API_KEY": "key", "MODEL": "model", "PORT": "0"}
    for proxy, kind in (("socks5://me:secret@127.0.0.1:1", "ImportError"), ("x::", "InvalidURL")):
        given = variables | {"ALL_PROXY": proxy}
        for words in (["check"], ["chat", "Hello"], ["serve"]):
            result = subprocess.run(
                [command, *words],
                cwd=tmp_path,
                env=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert result.returncode == 1
            what = rf"Cannot create the model's client \({kind}\b.*\): check ALL_PROXY\."
            assert re.search(what, result.stdout), result.stdout
            assert ("uv add socksio" in result.stdout) is (kind == "ImportError")
            assert len(result.stdout.splitlines()) <= 2, result.stdout
            assert "secret" not in result.stdout
        result = subprocess.run(
            [command, "chat", "Hello"],
            cwd=tmp_path,
            env={**clean_environment(), "ALL_PROXY": proxy},
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, "the offline model needs no proxy"


@pytest.mark.parametrize(
    "variant",
    ["strands-python+openai-compatible", "vercel-typescript+openai-compatible"],
)
def test_a_dead_proxy_is_named(variant: str, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        variables = {
            **clean_environment(),
            "OPENAI_BASE_URL": "https://models.example/v1",
            "OPENAI_API_KEY": "key",
            "MODEL": "model",
            "HTTPS_PROXY": proxy,
            "NODE_USE_ENV_PROXY": "1",
        }
        command = command_of(installed(variant), "chat")
        if "node" in command[0]:
            command[1] = str(installed(variant) / "src" / "main.ts")
        said = forks.run(command, tmp_path, variables, typed="Hello.\n").stdout
    assert "check OPENAI_BASE_URL, HTTPS_PROXY and the network." in said


@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_no_python_is_taken_that_was_not_tried(target: str) -> None:
    manifest = tomllib.loads((rendered(target) / "pyproject.toml").read_text())
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tried = matrix["jobs"]["test"]["strategy"]["matrix"]["python"]
    # With 3.14 Strands needs a compiler on macOS: see BUILT in tests/renders/test_systems.py.
    assert "3.13" in tried
    wanted = f"{manifest['project']['requires-python']},<3.14\n"
    assert (rendered(target) / ".python-versions").read_text() == wanted


def test_uv_takes_a_python_that_the_file_allows(tmp_path: Path) -> None:
    (tmp_path / ".python-versions").write_text(f"=={sys.version_info[0]}.{sys.version_info[1]}.*\n")
    found = subprocess.run(
        [*uv(), "python", "find", "--no-python-downloads"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    command = [found.stdout.strip(), "-c", "import sys; print(sys.version_info[:2])"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == f"{sys.version_info[:2]}\n"
