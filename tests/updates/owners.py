"""The most ordinary edits of an owner, each as its own tool or hand makes it, and what is kept."""

import json
import subprocess
import tomllib
from pathlib import Path

from tests.installed import clean_environment, uv
from tests.updates.edits import FILES, Edit, edits_of
from tests.updates.history import commit, git

# What stands at the end of a file, where no update writes. AGENTS.md is deleted in Python.
SECTION = "\n## The bookshop\n\nIt has opened on Mondays, too.\n"
STEP = "      - run: echo The bookshop has checked it\n"
TESTS = {
    "tests/test_turn.py": "\n\ndef test_of_the_bookshop() -> None:\n    assert 'ajar'\n",
    "tests/test_server.py": "\n\ndef test_of_the_door() -> None:\n    assert 'open'\n",
    "tests/turn.test.ts": "\ntest('of the bookshop', () => {\n  assert.ok(test)\n})\n",
    "tests/server.test.ts": "\ntest('of the door', () => {\n  assert.ok(test)\n})\n",
}
APPENDED = {
    ".env.example": "# BOOKSHOP=main-street\n",
    ".github/workflows/ci.yml": STEP,
    ".gitignore": "shelves/\n",
    "AGENTS.md": "- Ask the bookshop before a release.\n",
    "README.md": SECTION,
} | TESTS
DELETED = {"python": "AGENTS.md", "typescript": ".npmrc"}
# What an owner writes in place of what the template has, in the projects that have it.
PYTHON_SETTINGS = {
    "8080": "9000",
    "integer(8, 0, 86_400)\n    allowed_hosts": "integer(25, 0, 86_400)\n    allowed_hosts",
}
TYPESCRIPT_SETTINGS = {
    "8080": "9000",
    "[8, 0, 86_400],\n  // A": "[25, 0, 86_400],\n  // A",
    "integer(8, 0, 86_400),\n  allowed": "integer(25, 0, 86_400),\n  allowed",
}
REPLACED = {
    "src/app/settings.py": PYTHON_SETTINGS,
    "src/app/harness/settings.py": PYTHON_SETTINGS,
    "src/settings.ts": TYPESCRIPT_SETTINGS,
    "src/harness/settings.ts": TYPESCRIPT_SETTINGS,
    "tests/test_turn.py": {"def test_turns_of_a_session_run": "def test_turns_of_a_customer_run"},
    "tests/turn.test.ts": {"test('turns of a session run": "test('turns of a customer run"},
}
SCRIPTS = {"dev": "node src/main.ts serve --reload", "seed": "node seed.ts"}
NODE_PACKAGES = {"dependencies": {"express": "^5.1.0", "ms": "^2.1.3"}}
NODE_PACKAGES["devDependencies"] = {"nodemon": "^3.1.0"}


def language_of(target: str) -> str:
    return target.partition("+")[0].rpartition("-")[2]


def own(project: Path, target: str) -> None:
    """Do and commit what owners do."""
    language = language_of(target)
    if language == "python":
        for packages in (["humanize", "fastapi"], ["--dev", "pytest-cov"]):
            command = [*uv(), "add", "--quiet", "--frozen", *packages]
            subprocess.run(command, cwd=project, env=clean_environment(), check=True)
    else:
        add_to(project / "package.json")
    for path, text in APPENDED.items():
        if (project / path).exists():
            with (project / path).open("a", encoding="utf-8") as end:
                end.write(text)
    for path, pairs in replaced(project):
        text = (project / path).read_text("utf-8")
        for old, new in pairs.items():
            text = text.replace(old, new, 1)
        (project / path).write_text(text, "utf-8")
    for change in agent_edits(target):
        file = project / change.path
        file.write_text(change.of(file.read_text("utf-8")), "utf-8")
    for path, text in FILES[target].items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text, "utf-8")
    (project / DELETED[language]).unlink()
    commit(project, "What our bookshop needs")


def agent_edits(target: str) -> list[Edit]:
    """Another prompt, and a tool."""
    path = "src/app/agent.py" if language_of(target) == "python" else "src/agent.ts"
    return edits_of(target, {path: b""})


def replaced(project: Path) -> list[tuple[str, dict[str, str]]]:
    """The files of a project in which an owner replaces something."""
    return [(path, pairs) for path, pairs in REPLACED.items() if (project / path).exists()]


def add_to(manifest: Path) -> None:
    """Add scripts and packages as npm does, which writes the whole file."""
    data = json.loads(manifest.read_text("utf-8"))
    # One by hand, one by `npm pkg set`.
    data["scripts"] = {"dev": SCRIPTS["dev"], **data["scripts"], "seed": SCRIPTS["seed"]}
    for group, packages in NODE_PACKAGES.items():
        data[group] = dict(sorted((data[group] | packages).items()))
    manifest.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")


def conflicts(project: Path) -> list[str]:
    """The files that an update left with conflicts."""
    return git(project, "diff", "--name-only", "--diff-filter=U").split()


def assert_own(project: Path, target: str, unmerged: list[str]) -> None:
    """All of it is still there, and a file without a conflict is what its tool can read."""
    for path, text in APPENDED.items():
        if path in unmerged or not (project / path).exists():
            continue
        assert (project / path).read_text("utf-8").endswith(text), path
    committed = git(project, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    for path, pairs in replaced(project):
        if path not in committed:
            continue
        before, text = git(project, "show", f"HEAD:{path}"), (project / path).read_text("utf-8")
        lost = [new for new in pairs.values() if new in before and new not in text]
        assert path in unmerged or lost == [], path
    for change in agent_edits(target):
        if change.path not in unmerged:
            assert change.new in (project / change.path).read_text("utf-8"), change.path
    for path, text in FILES[target].items():
        assert (project / path).read_text("utf-8") == text
    assert not (project / DELETED[language_of(target)]).exists()
    if "pyproject.toml" not in unmerged and (project / "pyproject.toml").exists():
        data = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
        assert {"humanize", "fastapi"} <= set(data["project"]["dependencies"])
        assert "pytest-cov" in data["dependency-groups"]["dev"]
    if "package.json" not in unmerged and (project / "package.json").exists():
        data = json.loads((project / "package.json").read_text("utf-8"))
        for group, packages in NODE_PACKAGES.items():
            assert packages.items() <= data[group].items()
        assert SCRIPTS.items() <= data["scripts"].items()
