"""The code of this repository is held to what it asks of a render."""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.conftest import ROOT
from tests.installed import NODE, clean_environment, installed, this_template
from tests.updates.commands import bash


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *("ruff check", "ruff format --check", "mypy hooks"),
        pytest.param("mypy", marks=pytest.mark.full),
    ],
)
def test_hooks_and_tests_are_clean(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_ci_runs_the_line_of_the_readme() -> None:
    install = "python3 -m pip install -q --upgrade --target .cache/uv uv"
    line = f"{install} && .cache/uv/bin/uv run pytest"
    assert line in (ROOT / ".ci" / "run").read_text().splitlines()
    assert line in (ROOT / "README.md").read_text()


@pytest.mark.full
@pytest.mark.slow
def test_a_skipped_test_fails_the_run_of_ci() -> None:
    as_root = (ROOT / ".ci" / "run").read_text().split('if [ "$(id -u)" = 0 ]; then\n')[1]
    assert "    export NO_SKIPS=1" in as_root.partition("\nelse\n")[0].splitlines()
    command = [sys.executable, "-m", "pytest", "-n", "0", "tests/template/test_repository.py"]
    environment = clean_environment() | {"LIKE_WINDOWS": "1", "NO_SKIPS": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "1 skipped" in result.stdout, result.stderr
    assert result.returncode == 1


def test_ci_tries_the_oldest_and_the_newest_copier_on_every_python() -> None:
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tried = matrix["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (allowed,) = [line for line in project["dependencies"] if line.startswith("copier")]
    oldest = this_template().settings["_min_copier_version"]
    assert tried["copier"] == [f"=={oldest}", allowed.removeprefix("copier")]
    assert Version(oldest) in SpecifierSet(allowed.removeprefix("copier"))
    assert tried["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert project["requires-python"] == ">=3.11"


def test_ci_fetches_the_whole_history() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    for job in jobs.values():
        assert job["steps"][0]["with"]["fetch-depth"] == 0


USES = re.compile(r"uses: ([\w./-]+)@(\S+)( # v[0-9.]+)\n")
PINNED = [
    ROOT / ".github",
    *(ROOT / "template" / name / ".github" for name in ("python", "typescript")),
]


@pytest.mark.parametrize("folder", PINNED, ids=lambda folder: folder.parent.name)
def test_actions_are_pinned_by_commit_and_get_no_credentials(folder: Path) -> None:
    """A tag can be moved; Dependabot raises a commit together with the comment behind it."""
    ours = dict(re.findall(r"uses: ([^@]+)@(.*)", (PINNED[0] / "workflows/ci.yml").read_text()))
    texts = [path.read_text() for path in (folder / "workflows").glob("*.yml")]
    assert texts
    for text in texts:
        assert len(USES.findall(text)) == text.count("uses: ")
        for action, commit, version in USES.findall(text):
            assert re.fullmatch("[0-9a-f]{40}", commit), action
            assert ours.get(action, commit + version) == commit + version
        steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
        checkouts = [step for step in steps if "actions/checkout" in step.get("uses", "")]
        assert checkouts
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    (update,) = yaml.safe_load((folder / "dependabot.yml").read_text())["updates"]
    assert update["package-ecosystem"] == "github-actions"


INSTALLS = {
    "python": ("uv.lock", "uv sync", "uv sync --locked"),
    "typescript": ("package-lock.json", "npm install", "npm ci"),
}


@pytest.mark.parametrize("language", INSTALLS)
def test_ci_of_a_project_obeys_its_lock_file_once_there_is_one(
    language: str, tmp_path: Path
) -> None:
    lock, before, after = INSTALLS[language]
    tool = before.split()[0]
    path = ROOT / "template" / language / ".github" / "workflows" / "ci.yml"
    steps = yaml.safe_load(path.read_text())["jobs"]["test"]["steps"]
    (step,) = [step["run"] for step in steps if lock in step.get("run", "")]
    script = f'{tool}() {{ echo {tool} "$@"; }}; {step}'
    assert bash(script, tmp_path).stdout.strip() == before
    (tmp_path / lock).touch()
    assert bash(script, tmp_path).stdout.strip() == after


# Files that owners fill, and that never change: an update that meets them would conflict.
OWNED = {
    "python/src/{{ package_name }}/routes.py": "2bcb6f57d9c5ecb3",
    "python/src/{{ package_name }}/own_capabilities.py": "a344638dfca118bc",
    "python/tests/test_agent.py.jinja": "fb206e7bdc2e693c",
    "typescript/src/routes.ts": "dc11d035d7c2a9f6",
    "typescript/src/own_capabilities.ts": "4c3e85f7d10ea441",
    "typescript/tests/agent.test.ts": "9f936d515e70eda7",
}


@pytest.mark.parametrize("path", OWNED)
def test_files_that_updates_leave_alone_never_change(path: str) -> None:
    digest = hashlib.sha256((ROOT / "template" / path).read_bytes()).hexdigest()
    assert digest.startswith(OWNED[path])


# Of an agent without a tool, and a capability that needs a setting and answers nobody.
OTHER_AGENT = """\
export const SYSTEM_PROMPT = 'You sell books.'
export const TOOLS = {}
"""
OTHER_CAPABILITIES = """\
import { AgentError, Capability, type CapabilityClass } from './harness/index.ts'
import { diagnostic, string } from './harness/index.ts'

export const OWN_SETTINGS = { ordersUrl: string('https?://.+', 'an http address') }

class Orders extends Capability<any> {
  override check() {
    const missing = diagnostic('SET-ORDERS_URL', 'ORDERS_URL is not set.')
    return this.settings.ordersUrl ? [] : [missing]
  }

  override async around() {
    throw new AgentError('session_forbidden')
  }
}

export const OWN_CAPABILITIES: CapabilityClass[] = [Orders]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "tests"),
    [
        ("vercel-typescript+approval", ["tests/harness/approval.test.ts"]),
        pytest.param("vercel-typescript+approval", [], marks=pytest.mark.full),
        pytest.param("vercel-typescript+fallback", [], marks=pytest.mark.full),
        pytest.param("vercel-typescript+ui", [], marks=pytest.mark.full),
    ],
)
def test_the_tests_of_the_template_pass_for_another_agent(
    variant: str, tests: list[str], tmp_path: Path
) -> None:
    """Only `agent.test.ts` is about the tools of the agent, and it is the owner's."""
    project = installed(variant)
    for folder in ("src", "tests"):
        shutil.copytree(project / folder, tmp_path / folder)
    shutil.copy(project / "package.json", tmp_path)
    (tmp_path / "node_modules").symlink_to((project / "node_modules").resolve())
    (tmp_path / "src" / "agent.ts").write_text(OTHER_AGENT)
    (tmp_path / "src" / "own_capabilities.ts").write_text(OTHER_CAPABILITIES)
    (tmp_path / "tests" / "agent.test.ts").unlink()
    command = [str(NODE), "--test", "--test-isolation=none", *tests]
    result = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
