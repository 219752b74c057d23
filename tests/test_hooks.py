"""The command line of hooks: what it prints and the codes that it exits with."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooks import snapshots
from hooks.variants import VARIANTS, base_of
from tests.conftest import PLAIN, ROOT

pytestmark = pytest.mark.slow  # each starts the command as a process
UNDEFINED = """\
_subdirectory: template
_envops: {undefined: jinja2.StrictUndefined}
model: {default: "{{ projct }}"}
"""


def hooks(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "hooks", *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def refused(result: subprocess.CompletedProcess[str], code: int, reason: str) -> None:
    """The command failed with one line on standard error, which has `reason` in it."""
    assert result.returncode == code, result
    assert result.stderr.startswith("error: "), result.stderr
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("command", ["check", "release", "render", "review", "snapshots"])
def test_help_has_an_example(command: str) -> None:
    result = hooks(command, "--help", cwd=ROOT)
    assert result.returncode == 0
    assert f"Example:\n    python -m hooks {command}" in result.stdout


def test_help_lists_the_exit_codes() -> None:
    assert "Exit codes: 0 fine, 1 something" in hooks("--help", cwd=ROOT).stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing command"),
        (["chekc"], "No such command 'chekc'"),
        (["check", "now"], "unexpected extra argument"),
        (["check", "--quick"], "No such option"),
        (["snapshots", "--wrte"], "No such option"),
        (["snapshots", "strands-python"], "unexpected extra argument"),
        (["render"], "Missing argument 'DEST'"),
        (["render", "strands-python"], "DEST is missing"),
        (["render", "rust", "new"], "'rust' is not one of 'strands-python'"),
        (["render", "", "new"], "'' is not one of"),
        (["render", "strands-python", "strands-python", "new"], "one variant at a time"),
        (["render", "full"], "full is not empty"),
        (["render", "file"], "is a file"),
        (["render", "file/below"], "cannot write to file/below: Not a directory"),
        (["render", "/proc/agent"], "cannot write to /proc/agent"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    arguments: list[str], reason: str, own_template: Path
) -> None:
    (own_template / "full").mkdir()
    (own_template / "full" / "kept").touch()
    (own_template / "file").touch()
    refused(hooks(*arguments, cwd=own_template), 2, reason)
    assert not (own_template / "new").exists()


@pytest.mark.parametrize("arguments", [["check"], ["render", "new"], ["snapshots"]])
def test_outside_a_template_it_says_where_to_go(arguments: list[str], tmp_path: Path) -> None:
    refused(hooks(*arguments, cwd=tmp_path), 2, f"no copier.yml and template/ in {tmp_path}")


@pytest.mark.parametrize("arguments", [["check"], ["render", "new"], ["snapshots"]])
@pytest.mark.parametrize("text", ["a: [", "- a\n", "", "_envops: 1\n", UNDEFINED])
def test_questions_that_are_broken_are_one_line_and_code_1(
    arguments: list[str], text: str, own_template: Path
) -> None:
    (own_template / "copier.yml").write_text(text)
    refused(hooks(*arguments, cwd=own_template), 1, "")
    assert not (own_template / "new").exists()


def test_check_is_quiet_about_a_good_template() -> None:
    result = hooks("check", cwd=ROOT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "no findings\n", "")


def test_check_prints_a_line_for_each_finding(own_template: Path) -> None:
    path = own_template / "copier.yml"
    question = "colour: {type: str, help: Which, defualt: red, choices: [red]}"
    path.write_text(f"_taks: []\n{path.read_text()}\n{question}\n")
    result = hooks("check", cwd=own_template)
    refused(result, 1, "findings: 3")
    first, second, third = result.stdout.splitlines()
    assert first.startswith("unknown-setting copier.yml:1 _taks is no setting")
    assert second.startswith("unknown-key copier.yml:")
    assert third.startswith("incomplete-question copier.yml:")


@pytest.mark.parametrize("variant", [v for v in VARIANTS if base_of(v) is None])
def test_render_makes_the_variant(variant: str, tmp_path: Path) -> None:
    result = hooks("render", variant, str(tmp_path / "deep" / "new"), cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    kept = snapshots.recorded(ROOT)[variant]
    made = snapshots.read(tmp_path / "deep" / "new")
    assert {path: made.get(path) for path in kept} == kept


def test_render_takes_the_first_variant_and_an_empty_folder(tmp_path: Path) -> None:
    result = hooks("render", str(tmp_path), cwd=ROOT)
    assert (result.returncode, result.stdout) == (0, f"strands-python is in {tmp_path}\n")
    assert snapshots.read(tmp_path) == snapshots.recorded(ROOT)["strands-python"]


def test_render_shows_edits_that_are_not_committed(own_template: Path, tmp_path: Path) -> None:
    (own_template / PLAIN / "NEWS.md").write_text("new\n")
    assert hooks("render", str(tmp_path / "new"), cwd=own_template).returncode == 0
    assert (tmp_path / "new" / "NEWS.md").read_text() == "new\n"


def test_render_does_not_take_over_the_users_own_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.yml"
    settings.write_text("defaults: {model: openai}\n")
    monkeypatch.setenv("COPIER_SETTINGS_PATH", str(settings))
    assert hooks("render", str(tmp_path / "new"), cwd=ROOT).returncode == 0
    assert "model: bedrock" in (tmp_path / "new" / ".copier-answers.yml").read_text()


def test_snapshots_are_compared_written_and_compared_again(own_template: Path) -> None:
    missing = hooks("snapshots", cwd=own_template)
    refused(missing, 1, "python -m hooks snapshots --write")
    assert "tests/snapshots/strands-python/README.md: missing, the render has it" in missing.stdout

    assert hooks("snapshots", "--write", cwd=own_template).returncode == 0
    same = hooks("snapshots", cwd=own_template)
    assert (same.returncode, same.stdout) == (0, "snapshots are as rendered\n")

    (own_template / PLAIN / "NEWS.md").write_text("new\n")
    changed = hooks("snapshots", cwd=own_template)
    refused(changed, 1, "files that are not as rendered: 4;")  # one in each target
    assert "+new" in changed.stdout.splitlines()


def test_snapshots_refuse_an_option_that_removes_a_file(own_template: Path) -> None:
    name = "{% if model == 'bedrock' %}NEWS.md{% endif %}"
    (own_template / PLAIN / name).write_text("new\n")
    refused(hooks("snapshots", "--write", cwd=own_template), 1, "leaves out NEWS.md")
    assert not (own_template / "tests").exists()


def test_snapshots_that_cannot_be_written_are_one_line(own_template: Path) -> None:
    (own_template / "tests").touch()
    refused(hooks("snapshots", "--write", cwd=own_template), 1, "Not a directory")
    shutil.rmtree(own_template)
