"""The quality of what is rendered: read by its owner, clean under strict tools, tested offline."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hooks.rendering import files_of
from hooks.variants import VARIANTS
from tests.conftest import ROOT, Render, Rendered
from tests.installed import clean_environment, installed, uv

# An option of an option changes a collection, and no code.
CODE = [name for name in VARIANTS if name.count("+") < 2]
PYTHON = [name for name in CODE if name.partition("+")[0].endswith("-python")]
BASES = [name for name in VARIANTS if "+" not in name]


def with_tests(variants: list[str]) -> list[Any]:
    """Those whose own tests are run; with another model in the soak, for it is not in them."""
    soak = {name: [pytest.mark.soak] for name in variants if "model" in VARIANTS[name]}
    return [pytest.param(name, marks=soak.get(name, [])) for name in variants]


# Words of this repository that mean nothing to the owner of a project.
OURS = re.compile(r"copier\.yml|python -m hooks|tests/(snapshots|conformance)|\.jinja|pytest-copie")
# How long the tests of a render may take.
SECONDS, SECONDS_WITH_STORE = 20, 40  # other tests run beside them
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
# A proxy that nothing listens at: what does not go through Python's sockets ends there.
DEAD_PROXY = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9"
) | {"NO_PROXY": "127.0.0.1"}


@pytest.fixture(params=VARIANTS)
def project(request: pytest.FixtureRequest, rendered: Rendered) -> Path:
    return rendered(request.param)


def texts(project: Path) -> dict[str, str]:
    return {path.as_posix(): (project / path).read_text("utf-8") for path in files_of(project)}


def test_every_file_is_tidy(project: Path) -> None:
    for path, text in texts(project).items():
        assert text == "" or text.endswith("\n"), f"{path} does not end its last line"
        assert not text.endswith("\n\n"), f"{path} ends in a blank line"
        assert not text.startswith("\n"), f"{path} starts with a blank line"
        assert not re.search(r"[ \t]$", text, re.MULTILINE), f"{path} has spaces at a line's end"
        assert "\n\n\n\n" not in text, f"{path} has three blank lines in a row"
        assert "\r" not in text, f"{path} has Windows line ends"
        assert "\t" not in text or path.endswith("Makefile"), f"{path} has tabs"


def test_no_file_is_left_unrendered_or_speaks_of_this_repository(project: Path) -> None:
    for path, text in texts(project).items():
        assert not re.search(r"(?<!\$)\{\{ |\{%", text), f"{path} holds Jinja"
        assert not OURS.search(text), f"{path} speaks of {OURS.search(text)}"


def test_the_readme_and_the_guidance_are_short(project: Path) -> None:
    text, _, memory = (project / "README.md").read_text("utf-8").partition("## Long-term memory")
    assert len(text.splitlines()) <= 80
    assert len(memory.splitlines()) <= 40
    assert len((project / "AGENTS.md").read_text("utf-8").splitlines()) <= 15


def test_every_relative_link_leads_to_a_file(project: Path) -> None:
    for path in project.rglob("*.md"):
        for link in LINK.findall(path.read_text("utf-8")):
            if "://" not in link and not link.startswith("mailto:"):
                assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_every_module_says_what_it_is_for(project: Path) -> None:
    for path in files_of(project):
        text = (project / path).read_text("utf-8")
        if path.suffix == ".py" and text:
            assert text.startswith(('"""', 'r"""')), f"{path} starts without a docstring"
        if path.suffix == ".ts" and text:
            assert text.startswith(("//", "/**")), f"{path} starts without a comment"


def test_no_secret_and_no_lock_file_is_rendered(project: Path) -> None:
    names = {path.name for path in project.rglob("*")}
    assert not names & {".env", "uv.lock", "package-lock.json", ".venv", "node_modules"}


@pytest.mark.parametrize("target", BASES)
def test_long_term_memory_is_the_same_code_without_a_session_store(
    target: str, render: Render, rendered: Rendered
) -> None:
    """So that what is tried with one holds without it."""
    alone = texts(render(target=target, long_term_memory="agentcore"))
    both = texts(rendered(f"{target}+valkey+agentcore"))
    changed = {path for path in alone if alone[path] != both[path]}
    declares = {f"{kind}/my-agent.{end}.md" for kind, end in (("agents", "agent"), ("iam", "iam"))}
    assert changed <= {".copier-answers.yml", ".env.example", "README.md"} | declares
    assert both.keys() - alone.keys() == {"collections/sessions.collection.md"}


def run(project: Path, *command: str, **environment: str) -> str:
    result = subprocess.run(
        [str(project / ".venv" / "bin" / command[0]), *command[1:]],
        cwd=project,
        env={**clean_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout}"
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("variant", PYTHON)
def test_a_render_is_clean_for_its_own_linters(variant: str) -> None:
    project = installed(variant)
    run(project, "ruff", "check", "--no-cache")
    run(project, "ruff", "format", "--check", "--no-cache")


@pytest.mark.slow
@pytest.mark.parametrize("variant", PYTHON)
def test_a_render_is_clean_for_its_own_type_checker(variant: str) -> None:
    run(installed(variant), "mypy")


@pytest.mark.slow
@pytest.mark.parametrize("variant", with_tests(PYTHON))
def test_a_render_passes_its_own_tests_offline_in_time(variant: str) -> None:
    project = installed(variant)
    plugin = {"PYTHONPATH": str(ROOT / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ("pytest", "-q", "-p", "no_network")
    most = SECONDS_WITH_STORE if "valkey" in variant else SECONDS
    for _ in range(2):  # other tests run beside this one, so it gets another try
        start = time.monotonic()
        assert re.search(r"\d+ passed", run(project, *command, **plugin, **DEAD_PROXY))
        if (seconds := time.monotonic() - start) < most:
            return
    pytest.fail(f"its own tests take {seconds:.0f} s, {most} are allowed")


@pytest.mark.slow
@pytest.mark.parametrize("variant", PYTHON)
def test_a_render_declares_what_it_imports_and_nothing_else(variant: str) -> None:
    project = installed(variant)
    command = [*uv(), "run", "-q", "--no-sync", "--with", "deptry>=0.23,<1", "deptry", "src"]
    command += ["--per-rule-ignores", "DEP002=bedrock-agentcore"]  # imported late, by its name
    result = subprocess.run(
        command, cwd=project, env=clean_environment(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_the_plugin_that_blocks_the_network_blocks_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import socket, urllib.request, pytest\n"
        "@pytest.mark.parametrize('url', ['http://192.0.2.1', 'http://example.com'])\n"
        "def test_out(url):\n"
        "    with pytest.raises(RuntimeError, match='offline'):\n"
        "        urllib.request.urlopen(url, timeout=1)\n"
        "def test_here():\n"
        "    server = socket.create_server(('127.0.0.1', 0))\n"
        "    socket.create_connection(server.getsockname(), timeout=1).close()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no_network", "-c", os.devnull, "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "no_proxy": "*"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "3 passed" in result.stdout, result.stdout
