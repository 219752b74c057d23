"""Files that exist only where two answers meet: each is linted and type-checked in some render."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hooks.rendering import render
from hooks.snapshots import PACKAGE, File, Tree, read, recorded_whole
from hooks.variants import EXTRAS, PROJECT_NAME, base_of, language_of
from tests.conftest import ROOT
from tests.installed import (
    CACHE,
    NPM,
    check,
    environment,
    link_environment,
    plain_template,
    python_for,
    union_manifest,
    uv,
)
from tests.matrix import ALONE, CROWDED, LANGUAGES, NEWEST, PAIRS, Row, When, pairs_of, params

pytestmark = pytest.mark.slow
# The modules of a vendor; lists of the modules that the answers ask for; and the spans of Strands
# in a project that has no collections.
RARE = re.compile(r"/(models/\w+|model|vendor|enabled|backends|kinds|tracing/adapter)\.(py|ts)$")
VENDORS = {"{{ anthropic }}", "{{ bedrock }}", "{{ gateway }}", "{{ openai }}"}
WEEKLY = VENDORS | {"{{ s3 }}"}  # as a part of another answer
IN_NEWEST = [row for row in CROWDED if row.name in NEWEST]
IN_INSTALLED = [row for row in CROWDED if row.name not in NEWEST]


def made(row: Row, shared: Path) -> Path:
    """Return the render of a row, to read only: the tests of a run share it."""
    project = shared / "crowded" / row.name
    project.parent.mkdir(exist_ok=True)
    with FileLock(f"{project}.lock"):
        if not project.exists():
            render(plain_template(), row.answers, project)
    return project


def pairs(language: str) -> list[Path]:
    """The folders of the template whose files two answers render."""
    folders = (ROOT / "template" / language).glob("{{*}}/{{*}}")
    return [folder for folder in folders if folder.is_dir() and "name" not in folder.name]


def holds(project: Path, folder: Path) -> bool:
    """Whether a render has the files of a folder of the template."""
    for source in folder.rglob("*"):
        path = source.relative_to(folder).as_posix().replace("{{ project_name }}", PROJECT_NAME)
        path = path.replace("{{ package_name }}", PACKAGE)
        rendered = project / path.removesuffix(".jinja")
        if source.is_dir():
            continue
        if not rendered.is_file():
            return False
        if source.suffix != ".jinja" and rendered.read_bytes() != source.read_bytes():
            return False  # it is that of another folder
    return True


@pytest.mark.full
@pytest.mark.job("rendered", rows=CROWDED)
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_folder_of_two_answers_is_in_a_render_that_is_checked(
    language: str, shared: Path
) -> None:
    rows = [row for row in CROWDED if row.name.endswith(f"-{language}")]
    projects = {row.name: made(row, shared) for row in rows}
    names = {
        folder: {name for name, project in projects.items() if holds(project, folder)}
        for folder in pairs(language)
    }
    assert [str(folder) for folder, found in names.items() if not found] == []
    usual = {row.name for row in rows if row.typed is When.EVERY_RUN}
    rare = {folder for folder, found in names.items() if not found & usual}
    assert [str(folder) for folder in rare if folder.name not in WEEKLY] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_source_is_in_a_render_whose_types_every_run_checks(
    language: str, shared: Path
) -> None:
    whole = recorded_whole(ROOT)
    alone = [row for row in ALONE if language_of(row.name) == language]
    checked = [
        read(made(row, shared))
        for row in CROWDED
        if row.name.endswith(f"-{language}") and row.typed is When.EVERY_RUN
    ]
    checked += [
        whole[row.name] for row in alone if row.typed is When.EVERY_RUN or base_of(row.name) is None
    ]
    known = {source for tree in checked for source in sources(tree)}
    unknown = {source for row in alone for source in sources(whole[row.name])} - known
    assert sorted({path for path, _ in unknown if not RARE.search(path)}) == []


def sources(tree: Tree) -> Iterator[tuple[str, File]]:
    """Yield the sources of a render, by path."""
    for path, file in tree.items():
        if path.startswith("src/") and path.endswith((".py", ".ts")):
            yield path, file


@pytest.mark.job("rendered", "linted", "typed")
@pytest.mark.parametrize("row", params(IN_INSTALLED, "typed"))
def test_a_crowded_render_is_clean_for_its_linters_and_types(
    row: Row, shared: Path, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(made(row, shared), tmp_path / row.name))
    lint(project, environment(row.answers["target"]))


@pytest.mark.job("linted", "typed")
@pytest.mark.parametrize("row", params(IN_NEWEST, "typed"))
def test_a_crowded_render_is_clean_with_the_newest_dependencies(
    row: Row, shared: Path, tmp_path: Path
) -> None:
    """The environments of the other tests keep the versions that they once installed."""
    project = Path(shutil.copytree(made(row, shared), tmp_path / row.name))
    target = row.answers["target"]
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
    render(plain_template(), row.answers, tmp_path / "render")
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
