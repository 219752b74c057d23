"""Files that exist only where two answers meet: each is linted and type-checked in some render."""

import itertools
import random
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hooks.rendering import render
from hooks.variants import EXTRAS, MODELS, PROJECT_NAME, STORES, TARGETS
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
BOTH_MEMORIES = "agentcore-and-knowledge-base"
# These are linted with the newest dependencies in the usual run.
NEWEST = [("vercel+valkey", "python"), ("strands+s3", "typescript")]
ROWS = [
    pytest.param(
        name,
        language,
        marks=() if name in USUAL and (name, language) not in NEWEST else pytest.mark.full,
    )
    for name in CROWDED
    for language in LANGUAGES
]


def answers_of(name: str, language: str) -> dict[str, Any]:
    target = f"{name.partition('+')[0]}-{language}"
    assert target in TARGETS
    memory = {"long_term_memory": BOTH_MEMORIES, "extras": [*EXTRAS]}
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
    lint(project, environment(target))


@pytest.mark.parametrize(("name", "language"), NEWEST)
def test_a_crowded_render_is_clean_with_the_newest_dependencies(
    name: str, language: str, tmp_path: Path
) -> None:
    """The environments of the other tests keep the versions that they once installed."""
    project, target = crowded(name, language, tmp_path), answers_of(name, language)["target"]
    folder = CACHE / "newest" / target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        file, manifest = union_manifest(target)
        (folder / file).write_text(manifest)
        if language == "typescript":
            check(folder, *NPM, "update", "--no-audit", "--no-fund", "--loglevel=error")
        else:
            check(folder, *uv(), "sync", "-q", "--upgrade", "--python", python_for(folder))
        lint(project, folder)


def combinations() -> Iterator[dict[str, Any]]:
    """Answers of renders in which each pair of answers to two questions occurs."""
    choices: dict[str, tuple[Any, ...]] = {
        "target": TARGETS,
        "model": tuple(sorted({model for models in MODELS.values() for model in models})),
        "session_store": ("in-process", *STORES),
        "long_term_memory": ("none", "agentcore", "knowledge-base", BOTH_MEMORIES),
        "deploy": ("none", "container", "agentcore", "kubernetes"),
        **dict.fromkeys(EXTRAS, (False, True)),
    }
    parts = itertools.combinations(choices, 2)
    pairs = {
        ((one, a), (other, b))
        for one, other in parts
        for a, b in itertools.product(choices[one], choices[other])
        if is_allowed({one: a, other: b})
    }
    chosen = random.Random(0)
    while pairs:
        tries = list[tuple[int, dict[str, Any]]]()
        first = min(pairs, key=repr)
        for _ in range(12):
            answers = {name: chosen.choice(values) for name, values in choices.items()}
            answers |= dict(first)
            if is_allowed(answers):
                tries.append((len(pairs & pairs_of(answers)), answers))
        _, best = max(tries, key=lambda it: it[0])
        pairs -= pairs_of(best)
        extras = [extra for extra in EXTRAS if best.pop(extra)]
        yield {"project_name": PROJECT_NAME, **best, "extras": extras}


def pairs_of(answers: dict[str, Any]) -> set[Any]:
    """The pairs of answers that a render has."""
    return set(itertools.combinations(answers.items(), 2))


def is_allowed(answers: dict[str, Any]) -> bool:
    """Whether copier.yml takes these answers together."""
    is_strands = answers.get("target", "").startswith("strands")
    is_kubernetes = answers.get("deploy") == "kubernetes"
    is_refused = is_kubernetes and answers.get("session_store") == "in-process"
    return not is_refused and not (is_strands and answers.get("model") == "gateway")


COMBINATIONS = list(combinations())


def test_the_combinations_have_each_pair_of_answers() -> None:
    assert len(COMBINATIONS) < 60
    pairs = set[Any]()
    for row in COMBINATIONS:
        extras = {extra: extra in row["extras"] for extra in EXTRAS}
        pairs |= pairs_of({name: row[name] for name in list(row)[1:-1]} | extras)
    assert (("session_store", "s3"), ("long_term_memory", "knowledge-base")) in pairs
    assert (("target", "vercel-python"), ("auth", True)) in pairs


@pytest.mark.full
@pytest.mark.parametrize("answers", COMBINATIONS, ids=lambda it: it["target"])
def test_each_pair_of_answers_is_clean_for_its_linters_and_types(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    render(ROOT, answers, tmp_path / "render")
    lint(tmp_path / "render", environment(answers["target"]))


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
