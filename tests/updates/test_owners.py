"""What owners do most meets no update: not one conflict in the files that all of them edit."""

import itertools
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from filelock import FileLock

from hooks.variants import STORES, TARGETS, VARIANTS
from tests.conftest import ROOT
from tests.installed import rendered, target_of
from tests.updates.commands import mend
from tests.updates.history import NEWEST, History, commit, git, one_framework_of, update
from tests.updates.own_tests import pass_once
from tests.updates.owners import assert_own, conflicts, language_of, own

pytestmark = pytest.mark.slow
TABLE = ROOT / ".cache" / "conflicts.md"
# A way through the answers, each step one update: on, changed, off. No model is as at first.
WAY = [
    ("in-process", "none", ""),
    ("valkey", "none", ""),
    ("s3", "none", "anthropic"),
    ("custom", "none", "openai-compatible"),
    ("custom", "agentcore", "bedrock"),
    ("in-process", "agentcore", "openai"),
    ("in-process", "none", "anthropic"),
    ("valkey", "agentcore", "anthropic"),
]
# Each command of CHANGELOG.md, and packages that the template has added beside those of an owner.
USUAL_PAST = {("0.2.0", "vercel-typescript"), ("0.3.0", "vercel-python+valkey")}
# What the next two releases change: not the last lines, and no package beside that of an owner.
LATER = ["9999.1", "9999.2"]
PYTHON_SETTINGS = "python/src/{{{{ package_name }}}}/harness/settings.py"  # for str.format
CHANGES = [
    ("python/pyproject.toml.jinja", "starlette>=0.4{},<2", (6, 7, 8)),
    ("python/pyproject.toml.jinja", "pytest>=8.4,<1{}", (0, 1, 2)),
    ("typescript/package.json.jinja", '"typescript": "^7.0.{}"', (2, 3, 4)),
    ("typescript/package.json.jinja", "('yaml', '^2.{}'", (8, 9, 10)),
    ("{}/README.md.jinja", "its `copier` manager{}", ("", " also", " always")),
    ("{}/AGENTS.md.jinja", "- Invariant:{}", ("", " always", " everywhere")),
    ("shared/.env.example.jinja", "# Copy to .env{}", ("", " first", " at first")),
    ("{}/.github/workflows/ci.yml", "# v7.0.{}", (1, 2, 3)),
    ("{}/.gitignore", ".env\n{}", ("", "dist/\n", "dist/\nbuild/\n")),
    ("python/tests/harness/test_turn.py.jinja", '"""{}', ("", "Tests: ", "All tests: ")),
    ("typescript/tests/harness/turn.test.ts", "// {}", ("", "Tests: ", "All tests: ")),
    (
        "python/src/{{{{ package_name }}}}/harness/settings.py",
        "max_steps: int = integer(1{}, ",
        (0, 1, 2),
    ),
    ("typescript/src/harness/settings.ts", "maxSteps: integer(1{}, ", (0, 1, 2)),
]


def note(row: str, unmerged: list[str]) -> None:
    """Add a row to the table of conflicts."""
    TABLE.parent.mkdir(exist_ok=True)
    with FileLock(f"{TABLE}.lock"):
        lines = TABLE.read_text("utf-8").splitlines() if TABLE.exists() else []
        kept = [line for line in lines if not line.startswith(f"| {row} |")]
        line = f"| {row} | {len(unmerged)} | {', '.join(unmerged)} |"
        TABLE.write_text("\n".join(sorted([*kept, line])) + "\n", "utf-8")


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_a_capability_comes_changes_and_goes_without_a_conflict(
    target: str, history: History, tmp_path: Path
) -> None:
    project = history.project(tmp_path / "project", NEWEST, target)
    own(project, target)
    for before, after in itertools.pairwise(WAY):
        store, memory, model = after
        answers = {"session_store": store, "long_term_memory": memory, "model": model}
        update(project, **{name: answer for name, answer in answers.items() if answer})
        unmerged = conflicts(project)
        note(f"{target}: {', '.join(before)} -> {', '.join(after)}", unmerged)
        assert unmerged == []
        assert_own(project, target, unmerged)
        pass_once(history, target, project)
        commit(project, ", ".join(after))


@pytest.fixture(scope="module")
def later(history: History) -> History:
    """The releases, and two after the working tree."""

    def make(folder: Path) -> None:
        shutil.copytree(history.template, folder, symlinks=True)
        for number, version in enumerate(LATER):
            for path, text, values in CHANGES:
                old, new = (text.replace("{}", str(value)) for value in values[number:][:2])
                for language in ("python", "typescript") if "{}" in path else ("",):
                    file = folder / "template" / path.format(language)
                    before = file.read_text("utf-8")
                    assert old in before, f"{path} lacks {old!r}"
                    file.write_text(before.replace(old, new, 1), "utf-8")
            commit(folder, version)
            git(folder, "tag", version)

    other = History(history.folder / "next-copies")
    other.template = history.once("next", make)
    return other


RELEASED = [
    f"{target}{options}" for target in TARGETS for options in ("", "+valkey", "+valkey+agentcore")
]


@pytest.mark.full
@pytest.mark.parametrize("variant", RELEASED)
def test_the_next_releases_come_without_a_conflict(
    variant: str, later: History, tmp_path: Path
) -> None:
    target = variant.partition("+")[0]
    project = later.project(tmp_path / "project", NEWEST, variant)
    second = Path(shutil.copytree(project, tmp_path / "second", symlinks=True))
    for folder, versions in ((project, LATER), (second, LATER[1:])):
        own(folder, target)
        for version in versions:
            update(folder, version)
            unmerged = conflicts(folder)
            note(f"{variant}: {len(versions)} updates to {version}", unmerged)
            assert unmerged == []
            assert_own(folder, target, unmerged)
            commit(folder, version)
    assert git(project, "rev-parse", "HEAD^{tree}") == git(second, "rev-parse", "HEAD^{tree}")
    pass_once(later, target, project)


LAST_LINES = {
    ".env.example": "# Write your own settings below this line: no update changes them.",
    ".github/workflows/ci.yml": "      - run: (uv run pytest|npm test)",
    ".gitignore": "(__pycache__|node_modules)/",
    "AGENTS.md": "  for deleted edits in `git diff HEAD --diff-filter=D`\\.",
    "README.md": "remove it, .* `=in-process`. For another `target` start a new project.",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_lines_that_owners_write_behind_stay_for_ever(variant: str) -> None:
    project, target = rendered(variant), target_of(variant)
    last = {path: (project / path).read_text("utf-8").splitlines()[-1] for path in LAST_LINES}
    for path, line in LAST_LINES.items():
        assert re.fullmatch(line, last[path]), f"{path} ends with {last[path]}"
    if language_of(target) == "typescript":
        text = (project / "package.json").read_text("utf-8")
        assert text == json.dumps(json.loads(text), indent=2) + "\n", "as npm writes it"
        base = json.loads((rendered(target) / "package.json").read_text("utf-8"))
        assert json.loads(text)["dependencies"] == base["dependencies"]
        return
    data = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    lists = {"uvicorn>=0.34,<1": data["project"]["dependencies"]}
    lists["ruff>=0.14,<1"] = data["dependency-groups"]["dev"]
    for name, packages in lists.items():
        # uv adds at the end, unless a list is sorted.
        assert packages[-1] == name
        assert packages != sorted(packages)


TEXTS = {".env.example", "AGENTS.md", "README.md"}  # an owner's lines stand behind the others


def lines_of(text: str) -> set[str]:
    """The lines of a text, without the commas that JSON has between them."""
    return {line.rstrip(",") for line in text.splitlines()}


def expected(release: str, variant: str) -> set[str]:
    """The conflicts that CHANGELOG.md names: where an old release wrote beside the owner."""
    if release >= "0.7.0":
        return set()
    target, *options = variant.split("+")
    is_python, is_old, is_older = "python" in target, release < "0.6.0", release < "0.5.0"
    is_openai = target.startswith("strands-") and {"openai", "openai-compatible"} & set(options)
    is_moved = {*STORES, "agentcore"} & set(options) or is_openai
    found = {
        ".env.example": True,
        "AGENTS.md": is_older and not is_python,
        "README.md": is_older or (is_old and "agentcore" in options),
        "package.json": not is_python and (is_old or is_moved),
        "pyproject.toml": is_python and (is_older or (is_old and "s3" not in options)),
    }
    return {path for path, is_conflict in found.items() if is_conflict}


def past() -> list[ParameterSet]:
    weekly = one_framework_of("conflicts")
    return [
        pytest.param(*row, marks=[] if row in USUAL_PAST else [pytest.mark.full]) for row in weekly
    ]


@pytest.mark.full
@pytest.mark.parametrize(("release", "variant"), past())
def test_conflicts_of_an_older_release_are_known_and_mended_by_one_command(
    release: str, variant: str, history: History, tmp_path: Path
) -> None:
    target = variant.partition("+")[0]
    project = history.project(tmp_path / "project", release, variant)
    own(project, target)
    update(project)
    unmerged = conflicts(project)
    note(f"{variant}: {release} -> next", unmerged)
    assert_own(project, target, unmerged)
    assert set(unmerged) == expected(release, variant)

    # Code that an owner edited is the owner's to merge.
    by_hand = [path for path in unmerged if path.startswith(("src/", "tests/"))]
    texts = [path for path in unmerged if path in TEXTS]
    manifests = [path for path in unmerged if path not in {*by_hand, *texts, "package.json"}]
    packages = [path for path in unmerged if path == "package.json"]
    mends = [(texts, "0.7.0", "perl"), (manifests, "0.6.0", "perl"), (packages, "0.6.0", "node")]
    for files, release_named, program in mends:
        if files:
            mend(project, files, release_named, program)
    assert_own(project, target, by_hand)
    for path in (*texts, *manifests, *packages):
        new = (history.copied(NEWEST, variant) / path).read_text("utf-8")
        lost = lines_of(new) - lines_of((project / path).read_text("utf-8"))
        assert lost == set(), f"the template's text in {path} is whole"
    if by_hand == []:  # and later updates meet nothing of it again
        commit(project, "Mended")
        update(project, model="anthropic")
        assert conflicts(project) == []
