"""The rendered workflow that looks for a newer template, run with bash and a gh of the test's."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hooks.variants import VARIANTS
from tests.conftest import Rendered
from tests.updates.commands import bash, script
from tests.updates.history import commit, git

GH = """#!/bin/sh
if [ "$1 $2" = "issue list" ]; then
    [ -e "$HERE/refused" ] && exit 1
    echo "$@" >"$HERE/listed"
    cat "$HERE/there" 2>/dev/null
    exit 0
fi
echo "$@" >>"$HERE/calls"
cp "$RUNNER_TEMP/body.md" "$HERE/body"
"""
HOSTILE = "- `$(touch HACKED)` @everyone ${{ secrets.X }} '; touch HACKED; ' </details> \"$(id)\""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A template with three releases, a tag that is none, and a changelog that means harm."""
    folder = tmp_path / "template"
    folder.mkdir()
    git(folder, "init", "--quiet")
    text = ""
    for version in ("0.9.0", "0.10.0", "0.11.0"):
        text = f"## {version}\n\n- What {version} changes.\n{HOSTILE}\n\n" + text
        (folder / "CHANGELOG.md").write_text(f"# Changes\n\n## next\n\n- Not yet.\n\n{text}")
        commit(folder, version)
        git(folder, "tag", version)
    for name in ("0.12.0rc1", "99.0$(touch${IFS}HACKED)", "latest"):
        git(folder, "tag", "--", name)
    return folder


@pytest.fixture
def run(tmp_path: Path, rendered: Rendered) -> Run:
    """Run the script in a project with these recorded answers."""
    tool = tmp_path / "bin" / "gh"
    tool.parent.mkdir()
    tool.write_text(GH)
    tool.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    code = script(rendered("strands-python"), "template.yml", "ls-remote")

    def run(source: object, version: str) -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        answers = f"# Written by Copier.\n_commit: {version}\n_src_path: {source}\nmodel: bedrock\n"
        (project / ".copier-answers.yml").write_text(answers)
        return bash(
            code,
            project,
            PATH=f"{tool.parent}:/usr/bin:/bin",
            HERE=str(tmp_path),
            RUNNER_TEMP=str(tmp_path / "temporary"),
            GIT_TERMINAL_PROMPT="0",
        )

    return run


def test_it_asks_for_no_more_than_it_needs(rendered: Rendered) -> None:
    for target in [variant for variant in VARIANTS if "+" not in variant]:
        text = (rendered(target) / ".github" / "workflows" / "template.yml").read_text("utf-8")
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read", "issues": "write"}
        # YAML 1.1 reads the key `on` as true.
        assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
        (job,) = workflow["jobs"].values()
        (code,) = [step["run"] for step in job["steps"] if "run" in step]
        assert "${{" not in code, "what is put into a script by GitHub can be a command"
        assert "git push" not in code


def test_what_is_new_is_told_in_an_issue(run: Run, source: Path, tmp_path: Path) -> None:
    result = run(source, "0.9.0")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "calls").read_text().startswith("issue create --title There is news")
    body = (tmp_path / "body").read_text()
    assert body.startswith("This project has 0.9.0. New: 0.10.0, 0.11.0. To take it:\n\n    uvx co")
    assert "    - What 0.11.0 changes.\n" in body
    assert "    - What 0.10.0 changes.\n" in body
    assert "What 0.9.0" not in body, "this project has it"
    assert "Not yet" not in body
    prose = [line for line in body.splitlines() if line and not line.startswith("    ")]
    assert len(prose) == 2, "what somebody else wrote is code, in which nothing is a link"
    assert list(tmp_path.rglob("HACKED")) == []


def test_an_open_issue_is_brought_up_to_date(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("7\n")
    assert run(source, "0.10.0").returncode == 0
    assert (tmp_path / "calls").read_text().startswith("issue edit 7 --body-file ")
    assert "--state open" in (tmp_path / "listed").read_text()


@pytest.mark.parametrize("version", ["0.11.0", "0.12.0", "'0.11.0'", "0.11.0-3-g0123abc"])
def test_without_news_nothing_is_done(run: Run, source: Path, tmp_path: Path, version: str) -> None:
    result = run(source, version)
    assert (result.returncode, result.stdout.strip()[-13:]) == (0, "s the newest.")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("place", "version"),
    [
        ("/nowhere/template", "0.9.0"),
        ("--upload-pack=touch${IFS}HACKED", "0.9.0"),
        ("ext::sh -c touch% HACKED", "0.9.0"),
        ("$(touch HACKED)", "0.9.0"),
        ("", "0.9.0"),
        (None, "$(touch HACKED)"),
        (None, "abc1234"),
        (None, ""),
    ],
)
def test_what_cannot_be_read_is_one_warning(
    run: Run, source: Path, tmp_path: Path, place: str | None, version: str
) -> None:
    result = run(source if place is None else place, version)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "::warning::The template is not known here, or cannot be read.\n"
    assert not (tmp_path / "calls").exists()
    assert list(tmp_path.rglob("HACKED")) == []


def test_where_there_are_no_issues_nothing_is_done(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "refused").touch()
    assert run(source, "0.9.0").returncode == 0
    (tmp_path / "bin" / "gh").unlink()
    assert run(source, "0.9.0").returncode == 0
    assert not (tmp_path / "calls").exists()
