"""Files that exist only where two answers meet: each is linted and type-checked in some render."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hooks.rendering import render
from hooks.variants import EXTRAS, PROJECT_NAME, TARGETS
from tests.conftest import ROOT
from tests.installed import NPM, clean_environment, environment, link_environment

pytestmark = pytest.mark.slow
# Renders with many answers at once. The usual run has those of `USUAL`.
CROWDED: dict[str, dict[str, str]] = {
    "strands+s3": {"session_store": "s3", "model": "anthropic", "deploy": "agentcore"},
    "strands+custom": {"session_store": "custom", "model": "openai"},
    "strands+in-process": {"session_store": "in-process", "model": "bedrock"},
    "vercel+valkey": {"session_store": "valkey", "model": "bedrock", "deploy": "container"},
    "vercel+s3": {"session_store": "s3", "model": "anthropic", "deploy": "agentcore"},
    "vercel+custom": {"session_store": "custom", "model": "gateway"},
    "vercel+in-process": {"session_store": "in-process", "model": "openai"},
}
USUAL = {"strands+s3", "strands+custom", "vercel+valkey"}
VENDORS = {"{{ anthropic }}", "{{ bedrock }}", "{{ gateway }}", "{{ openai }}"}
LANGUAGES = ("python", "typescript")
ROWS = [
    pytest.param(name, language, marks=() if name in USUAL else pytest.mark.full)
    for name in CROWDED
    for language in LANGUAGES
]


def answers_of(name: str, language: str) -> dict[str, Any]:
    target = f"{name.partition('+')[0]}-{language}"
    assert target in TARGETS
    memory = {"long_term_memory": "agentcore-and-knowledge-base", "extras": [*EXTRAS]}
    return {"project_name": PROJECT_NAME, "target": target, **memory, **CROWDED[name]}


@cache
def crowded(name: str, language: str, folder: Path) -> Path:
    project = folder / f"{name}-{language}"
    render(ROOT, answers_of(name, language), project)
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


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_folder_of_two_answers_is_in_a_render_that_is_checked(
    language: str, tmp_path: Path
) -> None:
    projects = {name: crowded(name, language, tmp_path) for name in CROWDED}
    names = {
        folder: {name for name, project in projects.items() if holds(project, folder)}
        for folder in pairs(language)
    }
    assert [str(folder) for folder, found in names.items() if not found] == []
    rare = {folder for folder, found in names.items() if not found & USUAL}
    assert [str(folder) for folder in rare if folder.name not in VENDORS] == []


@pytest.mark.parametrize(("name", "language"), ROWS)
def test_a_crowded_render_is_clean_for_its_linters_and_types(
    name: str, language: str, tmp_path: Path
) -> None:
    project, target = crowded(name, language, tmp_path), answers_of(name, language)["target"]
    shared = environment(target)
    link_environment(project, shared)
    if language == "typescript":
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
