"""The command line of hooks: what it prints and the codes that it exits with."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hooks import snapshots
from hooks.__main__ import main
from hooks.variants import VARIANTS
from tests.conftest import ROOT
from tests.template.test_check import PROJECT, SOUND, build, keep_variants

UNDEFINED = """\
_subdirectory: template/project
_envops: {undefined: jinja2.StrictUndefined}
model: {type: str, default: "{{ projct }}"}
"""
COMMANDS = [["check"], ["render", "strands-python", "new"], ["snapshots"]]


@dataclass
class Result:
    code: int
    out: str
    err: str

    def refused(self, code: int, reason: str) -> None:
        """The command failed with one line on standard error, which has `reason` in it."""
        assert self.code == code, self
        assert self.err.startswith("error: "), self
        assert reason in self.err
        assert self.err.count("\n") == 1, self


Hooks = Callable[..., Result]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hooks:
    """Run a command in the current folder."""

    def hooks(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["hooks", *arguments])
        return Result(main(), *capsys.readouterr())

    return hooks


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small template, which is the current folder, and three of its variants."""
    keep_variants(monkeypatch, "strands-python", "strands-python+openai", "vercel-python")
    root = build(tmp_path / "template", SOUND)
    monkeypatch.chdir(root)
    return root


def test_help_of_the_module_lists_the_exit_codes() -> None:
    command = [sys.executable, "-m", "hooks", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Exit codes: 0 fine, 1 findings" in result.stdout


@pytest.mark.parametrize(
    "command", ["check", "example", "release", "render", "review", "snapshots"]
)
def test_help_has_an_example(command: str, hooks: Hooks) -> None:
    result = hooks(command, "--help")
    assert result.code == 0
    assert f"Example:\n    python -m hooks {command}" in result.out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing command"),
        (["chekc"], "No such command 'chekc'"),
        (["check", "now"], "unexpected extra argument"),
        (["snapshots", "--wrte"], "No such option"),
        (["render", "strands-python"], "Missing argument 'DEST'"),
        (
            ["render", "rust", "new"],
            "'rust' is unknown. hooks/variants.py lists the names, such as",
        ),
        (["render", "strands-python+opena", "new"], "such as strands-python+openai"),
        (["render", "strands-python", "full"], "full is not empty"),
        (["render", "strands-python", "new/.."], " is not empty"),
        (["render", "strands-python", "file"], "is a file"),
        (["review"], "Missing option '--against'"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    arguments: list[str], reason: str, hooks: Hooks, root: Path
) -> None:
    (root / "full").mkdir()
    (root / "full" / "kept").touch()
    (root / "file").touch()
    hooks(*arguments).refused(2, reason)
    assert not (root / "new").exists()


@pytest.mark.parametrize("arguments", COMMANDS)
def test_outside_a_template_it_says_where_to_go(
    arguments: list[str], hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hooks(*arguments).refused(2, f"no copier.yml and template/ in {tmp_path}")


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("text", ["a: [", "- a\n", "", "_subdirectory: a\n_envops: 1\n", UNDEFINED])
def test_questions_that_are_broken_are_one_line_and_code_1(
    arguments: list[str], text: str, hooks: Hooks, root: Path
) -> None:
    (root / "copier.yml").write_text(text)
    hooks(*arguments).refused(1, "")
    assert not (root / "new").exists()


def test_check_is_quiet_about_a_good_template(hooks: Hooks) -> None:
    result = hooks("check")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\nno findings\n")


def test_check_prints_a_line_for_each_finding(hooks: Hooks, root: Path) -> None:
    with (root / "copier.yml").open("a") as file:
        file.write("_taks: []\nsize: {type: str, help: Which, defualt: 1, choices: [1]}\n")
    result = hooks("check")
    result.refused(1, "findings: 2")
    first, second = result.out.splitlines()
    assert first.startswith("unknown-key copier.yml _taks is unknown")
    assert second.startswith("unknown-key copier.yml size.defualt is unknown")


def test_render_makes_the_variant_with_edits_that_are_not_committed(
    hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / PROJECT / "NEWS.md").write_text("new\n")
    dest = tmp_path / "deep" / "new"
    assert hooks("render", "strands-python", str(dest)) == Result(
        0, f"strands-python is in {dest}\n", ""
    )
    assert (dest / "NEWS.md").read_text() == "new\n"
    assert "_src_path" not in (dest / ".copier-answers.yml").read_text()


def test_render_does_not_take_over_the_users_own_defaults(
    hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.yml"
    settings.write_text("defaults: {colour: blue}\n")
    monkeypatch.setenv("COPIER_SETTINGS_PATH", str(settings))
    assert hooks("render", "strands-python", str(tmp_path / "new")).code == 0
    assert "colour: red" in (tmp_path / "new" / ".copier-answers.yml").read_text()


def test_snapshots_are_compared_written_and_compared_again(hooks: Hooks, root: Path) -> None:
    missing = hooks("snapshots")
    missing.refused(1, "python -m hooks snapshots --write")
    assert "### `README.md`\n\nadded; all renders\n" in missing.out

    assert hooks("snapshots", "--write").code == 0
    assert hooks("snapshots") == Result(0, "the snapshots match the renders\n", "")

    (root / PROJECT / "NEWS.md").write_text("new\n")
    changed = hooks("snapshots")
    changed.refused(1, "the snapshots differ from the renders")
    assert changed.out.splitlines().count("+new") == 1

    (root / PROJECT / "NEWS.md").unlink()
    (root / snapshots.SNAPSHOTS / "old" / "x").mkdir(parents=True)
    (root / snapshots.SNAPSHOTS / "old" / "x" / "y").touch()
    assert "### `x/y`\n\nremoved; old\n" in hooks("snapshots").out


def test_snapshots_refuse_an_option_that_removes_a_file(
    hooks: Hooks, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, "vercel-python+valkey", {"session_store": "valkey"})
    with (root / "copier.yml").open("a") as file:
        file.write("session_store: {type: str, help: Which, default: none}\n")
    name = "{% if session_store == 'none' %}NEWS.md{% endif %}"
    (root / PROJECT / name).write_text("new\n")
    hooks("snapshots", "--write").refused(1, "leaves out NEWS.md")
    assert not (root / "tests").exists()


def test_snapshots_that_cannot_be_written_are_one_line(hooks: Hooks, root: Path) -> None:
    (root / "tests").touch()
    hooks("snapshots", "--write").refused(1, "Not a directory")
    shutil.rmtree(root)
