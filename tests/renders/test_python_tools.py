"""The quality of what is rendered: read by its owner, clean under strict tools, tested offline."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooks.rendering import files_of
from hooks.variants import VARIANTS
from tests.conftest import ROOT, Rendered
from tests.installed import (
    clean_environment,
    environment,
    installed,
    installed_alone,
    target_of,
    types_known,
    uv,
)
from tests.matrix import ALONE, Row, params
from tests.stores import forks

PYTHON = [name for name in VARIANTS if target_of(name).endswith("-python")]
ROWS = [row for row in ALONE if row.name in PYTHON]
SLOW = pytest.mark.slow
# Words of this repository that mean nothing to the owner of a project.
OURS = re.compile(r"copier\.yml|python -m hooks|tests/(snapshots|conformance)|\.jinja|pytest-copie")
KIND = r"(?:bool|int|str|tuple\[str, \.\.\.\])(?: \| None)?"
# A parameter of a function ends with a comma.
FIELD = re.compile(rf"^    (\w+): {KIND} = .*(?<!,)$", re.MULTILINE)
KEY = re.compile(r"(\w+): (?:boolean|integer|secret|string|stringList)\(")
TABLE = re.compile(r"^\| variable \|.*\n\|[-|]*\n((?:\|.*\n)+)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
# A proxy that nothing listens at: what does not go through Python's sockets ends there.
DEAD_PROXY = dict.fromkeys(
    ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9"
) | {"NO_PROXY": "127.0.0.1"}
SUPPORT = ROOT / "tests" / "support"
OFFLINE = DEAD_PROXY | {
    "PYTHONPATH": str(SUPPORT),
    "PYTHONDONTWRITEBYTECODE": "1",
}
PYTEST = ("python", "-m", "pytest", "-q", "-p", "no_network")


@pytest.fixture(
    params=[name if "+" not in name else pytest.param(name, marks=SLOW) for name in VARIANTS]
)
def project(request: pytest.FixtureRequest, rendered: Rendered) -> Path:
    return rendered(request.param)


def texts(project: Path) -> dict[str, str]:
    return {path.as_posix(): (project / path).read_text("utf-8") for path in files_of(project)}


def test_every_file_is_tidy(project: Path) -> None:
    own = {path: text for path, text in texts(project).items() if not path.endswith(".min.js")}
    for path, text in own.items():
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


@pytest.mark.full
@SLOW
@pytest.mark.parametrize(
    "variant",
    [
        "strands-python+approval",
        pytest.param("strands-python+valkey+agentcore", marks=pytest.mark.full),
    ],
)
def test_a_render_passes_its_own_tests_on_the_oldest_python_that_it_takes(
    variant: str, rendered: Rendered, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(rendered(variant), tmp_path / "project"))
    environment = {**clean_environment(), **OFFLINE}
    for command in (
        [*uv(), "sync", "-q", "--python", "3.11"],
        [".venv/bin/python", "-m", "pytest", "-q", "-p", "no_network", "-k", "not store"],
    ):
        settings = environment if command[0].startswith(".venv") else clean_environment()
        done = subprocess.run(command, cwd=project, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short_and_the_same_for_all_answers(
    project: Path, rendered: Rendered
) -> None:
    text = (project / "README.md").read_text("utf-8")
    plain = rendered(project.name.partition("+")[0]) / "README.md"
    assert text == plain.read_text("utf-8")
    assert len(text.splitlines()) <= 120


def test_the_list_of_pages_is_complete(project: Path) -> None:
    pages = {path.name for path in (project / "docs").iterdir()} - {"README.md"}
    links = LINK.findall((project / "docs" / "README.md").read_text("utf-8"))
    assert sorted(link for link in links if "/" not in link) == sorted(pages)


def settings_of(project: Path) -> set[str]:
    """The variables that the modules `settings` of a project read."""
    found = set[str]()
    for path in (project / "src").rglob("settings.py"):
        found |= {name.upper() for name in FIELD.findall(path.read_text("utf-8"))}
    for path in (project / "src").rglob("settings.ts"):
        keys = KEY.findall(path.read_text("utf-8"))
        found |= {re.sub("([A-Z])", r"_\1", key).upper() for key in keys}
    return found


def test_each_setting_is_described_once(project: Path) -> None:
    rows = [
        row.partition(" | ")[0]
        for path in (*project.glob("*.md"), *project.glob("*/*.md"))
        for table in TABLE.findall(path.read_text("utf-8"))
        for row in table.splitlines()
    ]
    described = re.findall("`([A-Z_]+)`", "\n".join(rows))
    assert sorted(described) == sorted(set(described))
    assert settings_of(project) - set(described) == set()


def test_every_relative_link_leads_to_a_file(project: Path) -> None:
    for path in project.rglob("*.md"):
        for link in LINK.findall(path.read_text("utf-8")):
            if "://" not in link and not link.startswith("mailto:"):
                assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_every_link_to_a_heading_leads_there(project: Path) -> None:
    for path in project.rglob("*.md"):
        for file, anchor in ANCHOR.findall(path.read_text("utf-8")):
            if "://" not in file:
                linked = path.parent / file if file else path
                headings = re.findall(r"(?m)^#+ (.+)$", linked.read_text("utf-8"))
                anchors = [re.sub(r"[^\w -]", "", it).lower().replace(" ", "-") for it in headings]
                assert anchor in anchors, f"{path.name} links to {file}#{anchor}"


def test_every_module_states_its_purpose(project: Path) -> None:
    for path in files_of(project):
        text = (project / path).read_text("utf-8")
        if path.suffix == ".py" and text:
            assert text.startswith(('"""', 'r"""')), f"{path} starts without a docstring"
        if path.suffix == ".ts" and text:
            assert text.startswith(("//", "/**")), f"{path} starts without a comment"


def test_no_secret_and_no_lock_file_is_rendered(project: Path) -> None:
    names = {path.name for path in project.rglob("*")}
    assert not names & {".env", "uv.lock", "package-lock.json", ".venv", "node_modules"}


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
    assert result.returncode == 0, f"{project.name}: {' '.join(command)}:\n{result.stdout}"
    return result.stdout


@pytest.mark.slow
@pytest.mark.job("linted")
@pytest.mark.parametrize("row", params(ROWS, "linted"))
def test_a_render_is_clean_for_its_own_linter(row: Row) -> None:
    project = installed(row.name)
    ruff = str(environment(target_of(row.name)) / ".venv" / "bin" / "ruff")
    run(project, ruff, "check", "--no-cache")
    run(project, ruff, "format", "--check", "--no-cache")


@pytest.mark.slow
@pytest.mark.job("typed")
@pytest.mark.parametrize("row", params(ROWS, "typed"))
def test_renders_are_clean_for_their_own_type_checker(row: Row) -> None:
    with types_known(target_of(row.name)) as options:
        run(installed(row.name), *PYTEST[:2], "mypy", *options)


@pytest.mark.slow
@pytest.mark.job("tested")
@pytest.mark.parametrize("row", [row for row in params(ROWS, "tested") if not row.marks])
def test_a_render_passes_its_own_tests_offline(row: Row) -> None:
    project = installed(row.name)
    command = [str(project / ".venv" / "bin" / "python"), *PYTEST[1:]]
    result = forks.run(command, project, clean_environment() | OFFLINE)
    assert result.returncode == 0, result.stdout
    assert re.search(r"\d+ passed", result.stdout)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.job("tested")
@pytest.mark.parametrize("row", params(ROWS, "tested"))
def test_a_render_that_is_installed_alone_passes_its_own_tests(row: Row) -> None:
    assert re.search(r"\d+ passed", run(installed_alone(row.name), *PYTEST, **OFFLINE))


@pytest.mark.slow
@pytest.mark.job("used")
@pytest.mark.parametrize("row", params(ROWS, "used"))
def test_a_render_declares_exactly_its_imports(row: Row) -> None:
    late = "DEP002=bedrock-agentcore"  # imported late, by its name
    run(installed(row.name), *PYTEST[:2], "deptry", "src", "--per-rule-ignores", late)


@pytest.mark.slow
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
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "no_proxy": "*"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "3 passed" in result.stdout, result.stdout
