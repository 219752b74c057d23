"""Files that exist only where two answers meet: each is linted and type-checked in some render."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hooks.rendering import render
from hooks.variants import EXTRAS, PROJECT_NAME
from tests.conftest import ROOT
from tests.installed import (
    CACHE,
    NPM,
    clean_environment,
    environment,
    link_environment,
    python_for,
    union_manifest,
    uv,
)
from tests.matrix import CROWDED, LANGUAGES, NEWEST, PAIRS, Row, When, pairs_of, params

pytestmark = pytest.mark.slow
VENDORS = {"{{ anthropic }}", "{{ bedrock }}", "{{ gateway }}", "{{ openai }}"}
IN_NEWEST = [row for row in CROWDED if row.name in NEWEST]
IN_INSTALLED = [row for row in CROWDED if row.name not in NEWEST]


@cache
def made(name: str, folder: Path) -> Path:
    """Return the render of a row of CROWDED."""
    (row,) = [row for row in CROWDED if row.name == name]
    project = folder / row.name
    render(ROOT, row.answers, project)
    return project


def pairs(language: str) -> list[Path]:
    """The folders of the template whose files two answers render."""
    folders = (ROOT / "template" / language).glob("{{*}}/{{*}}")
    return [folder for folder in folders if folder.is_dir() and "name" not in folder.name]


def holds(project: Path, folder: Path) -> bool:
    """Whether a render has the files of a folder of the template."""
    for source in folder.rglob("*"):
        path = source.relative_to(folder).as_posix().replace("{{ project_name }}", PROJECT_NAME)
        rendered = project / path.removesuffix(".jinja")
        if source.is_dir():
            continue
        if not rendered.is_file():
            return False
        if source.suffix != ".jinja" and rendered.read_bytes() != source.read_bytes():
            return False  # it is that of another folder
    return True


@pytest.mark.job("rendered", rows=CROWDED)
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_folder_of_two_answers_is_in_a_render_that_is_checked(
    language: str, tmp_path: Path
) -> None:
    rows = [row for row in CROWDED if row.name.endswith(f"-{language}")]
    projects = {row.name: made(row.name, tmp_path) for row in rows}
    names = {
        folder: {name for name, project in projects.items() if holds(project, folder)}
        for folder in pairs(language)
    }
    assert [str(folder) for folder, found in names.items() if not found] == []
    usual = {row.name for row in rows if row.typed is When.EVERY_RUN}
    rare = {folder for folder, found in names.items() if not found & usual}
    assert [str(folder) for folder in rare if folder.name not in VENDORS] == []


@pytest.mark.job("linted", "typed")
@pytest.mark.parametrize("row", params(IN_INSTALLED, "typed"))
def test_a_crowded_render_is_clean_for_its_linters_and_types(row: Row, tmp_path: Path) -> None:
    lint(made(row.name, tmp_path), environment(row.answers["target"]))


@pytest.mark.job("linted", "typed")
@pytest.mark.parametrize("row", params(IN_NEWEST, "typed"))
def test_a_crowded_render_is_clean_with_the_newest_dependencies(row: Row, tmp_path: Path) -> None:
    """The environments of the other tests keep the versions that they once installed."""
    project, target = made(row.name, tmp_path), row.answers["target"]
    folder = CACHE / "newest" / target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        file, manifest = union_manifest(target)
        (folder / file).write_text(manifest)
        if file == "package.json":
            check(folder, *NPM, "update", "--no-audit", "--no-fund", "--loglevel=error")
        else:
            check(folder, *uv(), "sync", "-q", "--upgrade", "--python", python_for(folder))
        lint(project, folder)


def test_the_combinations_have_each_pair_of_answers() -> None:
    assert len(PAIRS) < 60
    pairs = set[Any]()
    for row in PAIRS:
        answers = dict(row.answers)
        extras = {extra: extra in answers["extras"] for extra in EXTRAS}
        del answers["project_name"], answers["extras"]
        pairs |= pairs_of(answers | extras)
    assert (("session_store", "s3"), ("long_term_memory", "knowledge-base")) in pairs
    assert (("target", "vercel-python"), ("auth", True)) in pairs


@pytest.mark.job("rendered", "linted", "typed")
@pytest.mark.parametrize("row", params(PAIRS, "typed"))
def test_each_pair_of_answers_is_clean_for_its_linters_and_types(row: Row, tmp_path: Path) -> None:
    render(ROOT, row.answers, tmp_path / "render")
    lint(tmp_path / "render", environment(row.answers["target"]))


def lint(project: Path, shared: Path) -> None:
    """Run the linters and the type checker of a render with the packages of `shared`."""
    link_environment(project, shared)
    if (project / "package.json").exists():
        check(project, *NPM, "run", "lint")
        return
    programs, cache = shared / ".venv" / "bin", shared / ".mypy_cache"
    check(project, str(programs / "ruff"), "check", "--no-cache")
    check(project, str(programs / "ruff"), "format", "--check", "--no-cache")
    with FileLock(f"{cache}.lock"):
        python = str(project / ".venv" / "bin" / "python")
        check(project, python, "-m", "mypy", "--cache-dir", str(cache))


def check(project: Path, *command: str) -> None:
    result = subprocess.run(
        command, cwd=project, env=clean_environment(), capture_output=True, text=True
    )
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout}{result.stderr}"
