"""What an owner does first, by README: a tool, a second model, a route; and what errors say."""

import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from hooks.variants import TARGETS
from tests.conformance.provider import Provider
from tests.conformance.steps import Refuse
from tests.conformance.targets import TARGETS as CONFORMANCE
from tests.conformance.targets import VENDOR_TARGETS, Target
from tests.conftest import ROOT
from tests.installed import (
    NODE,
    clean_environment,
    environment,
    installed,
    link_environment,
    rendered,
    uv,
)
from tests.stores import forks

pytestmark = pytest.mark.slow
BLOCK = re.compile(r"```(?:python|ts)\n(.*?)```", re.DOTALL)
LAST_IMPORT = re.compile(r"(.*^(?:import|from) [^\n]*\n)", re.DOTALL | re.MULTILINE)


def command_of(project: Path, *arguments: str) -> list[str]:
    if (project / "package.json").exists():
        return [str(NODE), "src/main.ts", *arguments]
    return [str(project / ".venv" / "bin" / "my-agent"), *arguments]


def run(project: Path, *arguments: str, typed: str = "", **settings: str) -> str:
    command, environment = command_of(project, *arguments), {**clean_environment(), **settings}
    return forks.run(command, project, environment, typed=typed).stdout


def add_tool(path: Path, block: str, name: str) -> None:
    """Write what an owner would: imports to the imports, the tool before TOOLS and into it."""
    imports = "".join(re.findall(r"^(?:import|from) .*\n", block, re.MULTILINE))
    code = re.sub(r"^(?:import|from) .*\n+", "", block, flags=re.MULTILINE).strip("\n")
    text = LAST_IMPORT.sub(lambda match: match[0] + imports, path.read_text(), count=1)
    gap = "\n\n\n" if path.suffix == ".py" else "\n\n"
    text = re.sub(r"^(export const )?TOOLS", lambda m: code + gap + m[0], text, flags=re.MULTILINE)
    listed = re.compile(r"^((?:export const )?TOOLS.*?)( ?[\]}])$", re.MULTILINE)
    path.write_text(listed.sub(rf"\1, {name}\2", text))


@pytest.fixture(scope="module", params=TARGETS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose owner has done all that its README proposes, word by word."""
    target = request.param
    project = tmp_path_factory.mktemp(target) / "my-agent"
    shutil.copytree(rendered(target), project)
    link_environment(project, environment(target))
    tool, model, route = BLOCK.findall((project / "README.md").read_text())
    model = re.sub(r"""(model(=|: )["'])[^"']+""", r"\1offline", model)
    python = (project / "src" / "app" / "agent.py").exists()
    agent = project / "src" / ("app/agent.py" if python else "agent.ts")
    routes = agent.with_stem("routes")
    names = ("lookup_order", "summarize")
    if target == "strands-typescript":
        names = ("lookupOrder", "summarize")
    elif target == "vercel-typescript":
        names = ("lookup_order: lookupOrder", "summarize")
    add_tool(agent, tool, names[0])
    add_tool(agent, model, names[1])
    text = re.sub(r"^(export const )?ROUTES[^\n]*\n", "", routes.read_text(), flags=re.MULTILINE)
    routes.write_text(text + route)
    return project


def test_the_tools_and_the_second_model_of_the_readme_answer(project: Path) -> None:
    typed = 'use lookup_order: 7\nuse lookup_order: {"order_id": "8"}\nuse summarize: Long.\n'
    said = run(project, "chat", typed=typed + 'use lookup_order: {"id": 9}\n')
    assert "The tool answered: Order 7 has been sent." in said
    assert "The tool answered: Order 8 has been sent." in said
    assert "The tool answered: I am the offline model, not a language model: I repeat" in said
    assert 'Now you said: "Long."' in said
    wrong = said.rpartition("The tool answered: ")[2]
    assert "order_id" in wrong
    assert re.search("required|expected", wrong, re.IGNORECASE)


def test_the_route_of_the_readme_is_served_and_guarded(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = forks.start(
        command_of(project, "serve"),
        cwd=project,
        env={**clean_environment(), "PORT": str(port), "API_TOKEN": "secret"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout
        assert any(f"Listening on http://127.0.0.1:{port}" in line for line in server.stdout)
        token = {"Authorization": "Bearer secret"}
        assert ask(port, "GET", token) == (200, "1.0")
        assert ask(port, "GET", {})[0] == 401
        assert ask(port, "GET", {**token, "Host": "evil.example"})[0] == 403
        assert ask(port, "DELETE", token)[0] == 405
    finally:
        server.kill()
        server.wait()


def ask(port: int, method: str, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, "/version", headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_what_the_readme_proposes_is_clean_for_the_type_checker(project: Path) -> None:
    if (project / "package.json").exists():
        command = [str(NODE), "node_modules/typescript/bin/tsc"]
    else:
        target = "strands-python" if "strands" in (project / "pyproject.toml").read_text() else ""
        cache = environment(target or "vercel-python") / ".mypy_cache"
        command = [".venv/bin/python", "-m", "mypy", "--cache-dir", str(cache)]
    result = subprocess.run(
        command, cwd=project, env=clean_environment(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "target",
    [*CONFORMANCE, *(pytest.param(t, marks=pytest.mark.full) for t in VENDOR_TARGETS)],
    ids=lambda target: target.name,
)
def test_chat_says_what_to_do_about_a_failure_of_the_provider(target: Target) -> None:
    provider = Provider()
    statuses = {"refused": 401, "absent": 404, "limited": 429, "overloaded": 529, "broken": 500}
    for prompt, status in statuses.items():
        provider.script(prompt, [Refuse(status)])
    project = installed(target.variant)
    command = [part for part in target.command(project) if part != "serve"]
    variables = target.provider(provider.origin)
    environment = {"PATH": os.environ["PATH"], **variables}
    typed = "".join(f"{prompt}\n" for prompt in statuses)
    result = forks.run([*command, "chat"], project.parent, environment, typed=typed)
    provider.close()
    lines = re.findall(r".*: look at .*|.*, try again later\.", result.stdout)
    key = next((name for name in variables if name.endswith("_API_KEY")), "the AWS credentials")
    assert len(lines) == len(statuses), result.stdout
    assert lines[0].endswith(f"HTTP 401): look at {key}.")
    assert "HTTP 404): look at MODEL and " in lines[1]
    assert lines[2].endswith("HTTP 429): the provider's limit is reached, try again later.")
    assert lines[3].endswith("HTTP 529): the provider failed or is overloaded, try again later.")
    assert lines[4].endswith("HTTP 500): the provider failed or is overloaded, try again later.")
    gone = forks.run([*command, "chat"], project.parent, environment, typed="Hello.\n")
    assert re.search(": look at .* and the network\\.", gone.stdout), gone.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_check_refuses_what_serve_refuses(target: str) -> None:
    project = installed(target)
    settings = {"HOST": "192.0.2.1", "PORT": "0"}  # an address of documentation
    said = run(project, "check", **settings)
    assert re.search(r"SET-HOST Cannot listen on HOST 192\.0\.2\.1, PORT 0: ", said), said
    assert "1 errors" in said
    refused = re.search(r"Cannot listen on .*", said)
    assert refused
    assert refused[0] in run(project, "serve", **settings)


@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_no_python_is_taken_that_was_not_tried(target: str) -> None:
    manifest = tomllib.loads((rendered(target) / "pyproject.toml").read_text())
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    newest = matrix["jobs"]["test"]["strategy"]["matrix"]["python"][-1]
    wanted = f"{manifest['project']['requires-python']},<3.{int(newest.removeprefix('3.')) + 1}\n"
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
