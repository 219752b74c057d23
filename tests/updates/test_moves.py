"""Modules that moved to `harness/`: one command carries the edits and imports of owners over."""

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from packaging.version import Version

from hooks import carry_over
from hooks.releases import sections
from hooks.variants import TARGETS
from tests.conftest import ROOT
from tests.installed import NODE, clean_environment, types_known
from tests.matrix import one_framework
from tests.updates.commands import bash, copier, named, programs
from tests.updates.history import NEWEST, History, commit, git, offered, one_framework_of, rows
from tests.updates.own_tests import link, pass_once

pytestmark = pytest.mark.slow
MOVED = "0.8.0"  # the release in which the modules moved
LAST = "0.7.0"  # the release before it
# Modules without a successor: their code is in several others now.
GONE = {
    *("bedrock", "copier_answers", "memory/memory", "parts", "start", "store/index"),
    *("store/versions", "tracing", "turn_log"),
}
USUAL_PLACES = {(LAST, "strands-python"), (LAST, "vercel-typescript+valkey+agentcore")}
# 0.5.0 wrote the modules of `memory/` anew, in `collections/` and `store/`.
REWRITTEN, MEMORY = "0.5.0", "memory/"
# The line that an owner puts in place of another, in modules that each release has.
PORT = ("8080", "9000")
LAST_LINE = "{} The bookshop has read this.\n"
PYTHON = {
    "src/app/desk.py": '''"""The desk of the bookshop."""

from .contract import AgentError
from .model import build_model
from .settings import read_settings


def desk() -> str:
    """Return the kind of the model."""
    settings, findings = read_settings()
    if findings:
        raise AgentError("internal_error")
    return type(build_model(settings)).__name__
''',
    "src/app/shop/back.py": '''"""The back of the bookshop."""

from ..contract import AgentError

ERROR = AgentError("internal_error")
''',
    "tests/test_desk.py": """import app.settings
from app.contract import AgentError
from app.desk import desk
from app.shop.back import ERROR


def test_the_desk_answers() -> None:
    assert app.settings.read_settings()[1] == []
    assert desk() == "OfflineModel"
    assert isinstance(ERROR, AgentError)
""",
}
TYPESCRIPT = {
    "src/desk.ts": """// The desk of the bookshop.

import { AgentError } from './contract.ts'
import { buildModel } from './model.ts'
import { readSettings } from './settings.ts'

export function desk(): string {
  const [settings, findings] = readSettings()
  if (findings.length > 0) throw new AgentError('internal_error')
  return (buildModel(settings) as object).constructor.name
}
""",
    "src/shop/back.ts": """// The back of the bookshop.

import { AgentError } from '../contract.ts'

export const ERROR = new AgentError('internal_error')
""",
    "tests/desk.test.ts": """import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AgentError } from '../src/contract.ts'
import { desk } from '../src/desk.ts'
import { ERROR } from '../src/shop/back.ts'

test('the desk answers', () => {
  assert.equal(desk(), 'OfflineModel')
  assert.ok(ERROR instanceof AgentError)
})
""",
}
# A module of an owner in a folder of the template, which needs a module of that folder.
BESIDE = {
    "src/app/memory/closet.py": '''"""Texts that the bookshop cannot look up."""

from .base import MemoryUnavailable

CLOSED = MemoryUnavailable
''',
    "src/memory/closet.ts": """// Texts that the bookshop cannot look up.

import { MemoryUnavailable } from './base.ts'

export const CLOSED = MemoryUnavailable
""",
}


def language_of(target: str) -> str:
    return target.partition("+")[0].rpartition("-")[2]


def params(usual: set[tuple[str, str]]) -> list[ParameterSet]:
    """Each release before MOVED with its targets, and with its capabilities in one framework.

    A row is marked as full unless a usual run has it.
    """
    before = [row for row in rows() if Version(row[0]) < Version(LAST)]
    last = [(LAST, variant) for variant in offered(LAST)] if before else []
    weekly = {*one_framework_of("moves")}
    weekly |= {(LAST, variant) for variant in one_framework("moves", offered(LAST) if last else [])}
    return [
        pytest.param(*row, marks=[] if row in usual else [pytest.mark.full])
        for row in before + last
        if "openai" not in row[1] and (row in weekly or row in usual)
    ]


def own(project: Path) -> dict[str, str]:
    """Edit modules that have moved, and add modules that import them; return the edits by path."""
    is_python = (project / "pyproject.toml").exists()
    if is_python:
        top, ending, comment = "src/app", "py", "#"
    else:
        top, ending, comment = "src", "ts", "//"
    edits = {}
    for name in ("settings", "requests", "sessions", "memory/base", "memory/own_stores"):
        path = project / top / f"{name}.{ending}"
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        if name == "settings":
            assert PORT[0] in text
            text, edit = text.replace(*PORT, 1), PORT[1]
        else:
            edit = LAST_LINE.format(comment)
            text += edit
        path.write_text(text, "utf-8")
        edits[path.relative_to(project).as_posix()] = edit.strip()
    beside = {
        place: text
        for place, text in BESIDE.items()
        if place.startswith(top) and (project / place).with_stem("base").exists()
    }
    for place, text in {**(PYTHON if is_python else TYPESCRIPT), **beside}.items():
        (project / place).parent.mkdir(exist_ok=True)
        (project / place).write_text(text, "utf-8")
    commit(project, "What our bookshop needs")
    return edits


def check_types(project: Path, target: str) -> None:
    """Run the type checker of the project."""
    base = target.partition("+")[0]
    link(project, base)
    with ExitStack() as stack:
        if language_of(target) == "python":
            command = [str(project / ".venv" / "bin" / "python"), "-m", "mypy"]
            command += stack.enter_context(types_known(base))
        else:
            command = [str(NODE), str(project / "node_modules" / "typescript" / "bin" / "tsc")]
        result = subprocess.run(
            command, cwd=project, env=clean_environment(), capture_output=True, text=True
        )
    assert result.returncode == 0, result.stdout + result.stderr


def assert_carried(project: Path, edits: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edit is in the new place of its module, or beside it in a short list of edits."""
    monkeypatch.chdir(project)
    for old, edit in edits.items():
        new = carry_over.new_place(old)
        assert new is not None, old
        rejected = project / f"{new}.rej"
        texts = [(project / new).read_text("utf-8")]
        if rejected.exists():
            texts.append(rejected.read_text("utf-8"))
            assert len(texts[-1].splitlines()) <= 8
        assert any(edit in text for text in texts), f"{edit} of {old} is lost"
        assert "<<<<<<<" not in texts[0]


@pytest.mark.parametrize(("release", "variant"), params(USUAL_PLACES))
def test_each_module_of_a_release_has_a_new_place(
    release: str, variant: str, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = history.copied(release, variant), history.copied(NEWEST, variant)
    monkeypatch.chdir(new)
    lost = set()
    for source in (old / "src").rglob("*.*"):
        path = source.relative_to(old)
        if source.is_file() and not path.exists() and not carry_over.new_place(path.as_posix()):
            lost.add(re.sub(r"^src/(app/)?|\.\w+$", "", path.as_posix()))
    if Version(release) < Version(REWRITTEN):
        lost = {name for name in lost if not name.startswith(MEMORY)}
    assert lost <= GONE


@pytest.mark.parametrize(("release", "variant"), params(set()))
def test_edits_and_imports_follow_the_modules(
    release: str,
    variant: str,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = history.project(tmp_path / "project", release, variant)
    edits = own(project)
    said = copier("update", "--defaults", "-r", NEWEST, cwd=project)
    command = named(said, "uv run --no-project")
    result = bash(command, project, PATH=programs(tmp_path / "bin"))
    assert result.returncode == 0, result.stderr
    assert git(project, "diff", "--name-only", "--diff-filter=U") == ""
    assert_carried(project, edits, monkeypatch)
    check_types(project, variant)
    pass_once(history, variant.partition("+")[0], project)


@pytest.mark.full
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=[] if target == "vercel-typescript" else [pytest.mark.full])
        for target in TARGETS
    ],
)
def test_a_project_of_the_last_release_is_updated_by_the_changelog_alone(
    target: str, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = history.project(tmp_path / "project", LAST, target)
    edits = own(project)
    assert len(edits) == 3
    (commands,) = re.findall(r"(?s)```sh\n(.*?)```", sections(ROOT, MOVED)[1])
    source = "https://raw.githubusercontent.com/org/agent-template/HEAD"
    assert source in commands
    commands = commands.replace(source, str(history.template))
    result = bash(commands, project, PATH=programs(tmp_path / "bin"))
    assert result.returncode == 0, result.stderr
    assert_carried(project, edits, monkeypatch)
    check_types(project, target)
    pass_once(history, target, project)


@pytest.mark.full
def test_a_later_update_does_not_name_the_command(history: History, tmp_path: Path) -> None:
    project = history.project(tmp_path / "project", NEWEST, "vercel-typescript")
    said = copier("update", "--defaults", "-r", ":current:", cwd=project)
    assert "carry_over" not in said


def test_without_a_project_the_command_says_where_to_type_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "Nothing")
    command = f"uv run --no-project {ROOT / 'hooks' / 'carry_over.py'}"
    result = bash(command, tmp_path, PATH=programs(tmp_path / "bin"))
    assert result.returncode == 1
    assert "Run this in the folder of the project" in result.stderr


def test_the_command_reads_paths_with_any_git_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    paths = ["src/app/größe.py", "src/app/deadline.py"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"# {path}\n" * 20, "utf-8")
    commit(tmp_path, "Modules")
    git(tmp_path, "config", "diff.renames", "copies")
    git(tmp_path, "config", "diff.external", "false")
    (tmp_path / "src/app/harness").mkdir()
    (tmp_path / paths[1]).rename(tmp_path / "src/app/harness/deadline.py")
    (tmp_path / paths[0]).unlink()
    git(tmp_path, "add", "--all")
    monkeypatch.chdir(tmp_path)
    assert sorted(carry_over.deleted()) == sorted(paths)
