"""What the skill and README say to type, typed in order, in all targets."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.conftest import ROOT
from tests.installed import clean_environment
from tests.updates.commands import programs
from tests.updates.edits import OUR_PROMPT, PROMPT
from tests.updates.history import History, commit, git

SKILL = ROOT / ".github" / "skills" / "agent-template" / "SKILL.md"
# What stands in its place in a project of TypeScript: the table of the skill says the same.
TYPESCRIPT = {
    r"(?m)^(cd \S+)(\n| &&)": r"\1 && npm install --silent\2",
    r"(?m)^(uvx copier update .*)$": r"\1\nnpm install --silent",
    r"uv run my-agent (\w+)": r"npm run -s \1",
    r"uv run pytest -q": "npm test",
    r"uv run ruff check && uv run ruff format --check && uv run mypy": "npm run lint",
}
TEST = """
test('an order is found', () => {
  const { stdout } = run(['chat'], 'use lookup_order: {"order_id": "7"}\\n')
  assert.match(stdout, /Order 7 has been sent/)
})
"""
pytestmark = pytest.mark.full


class Shell:
    """Types the commands of the skill, with the Copier of these tests and a template of theirs."""

    def __init__(self, bin: Path, template: Path, target: str) -> None:
        self.template, self.target = template, target
        self.environment = clean_environment()
        self.environment["PATH"] = programs(bin)

    def type(self, script: str, folder: Path) -> str:
        """Run commands in `folder`, as the table translates them; return all that they print."""
        script = script.replace("gh:org/agent-template", str(self.template))
        if self.target.endswith("-typescript"):
            for python, typescript in TYPESCRIPT.items():
                script = re.sub(python, typescript, script)
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("strands-python", self.target)],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, f"{script}\n{result.stdout}"
        return result.stdout


def blocks(heading: str, language: str = "sh") -> list[str]:
    """The blocks of a language under a heading of the skill."""
    (section,) = [
        part for part in SKILL.read_text("utf-8").split("\n## ")[1:] if part.startswith(heading)
    ]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def write_tool(project: Path, target: str) -> None:
    """Write the tool of README to its file, list it, and add the test of the skill."""
    readme = (project / "README.md").read_text()
    tool = re.search(r"```(?:python|ts)\n(.*?)```", readme, re.DOTALL)
    assert tool
    if target.endswith("-typescript"):
        agent, module, tests, test = "agent.ts", "orders.ts", "tests/agent.test.ts", TEST
        last, imported = "import { z } from 'zod'\n", "import { lookupOrder } from './orders.ts'\n"
        listed = ("[wordCount]", "[wordCount, lookupOrder]")
        if target.startswith("vercel"):
            tools = "{ word_count: wordCount, lookup_order: lookupOrder }"
            listed = ("{ word_count: wordCount }", tools)
    else:
        agent, module = "my_agent/agent.py", "my_agent/orders.py"
        tests = "tests/test_agent.py"
        last = "from strands import tool\n" if target == "strands-python" else "import ai\n"
        imported = "from .orders import lookup_order\n"
        listed = ("[word_count]", "[word_count, lookup_order]")
        shown, test = blocks("A tool with its test", "python")
        assert target != "strands-python" or tool[1].endswith(shown)
        test = f"\n\n{test}"
    (project / "src" / module).write_text(tool[1])
    text = (project / "src" / agent).read_text()
    assert (text.count(last), text.count(listed[0])) == (1, 1)
    text = text.replace(last, f"{last}\n{imported}").replace(*listed)
    (project / "src" / agent).write_text(text)
    with (project / tests).open("a") as file:
        file.write(test)


def assert_clean(project: Path) -> None:
    """Nothing is left to commit: the next `copier` command accepts the folder."""
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("target", TARGETS)
def test_all_that_the_skill_says_works_in_order(
    target: str, history: History, tmp_path: Path
) -> None:
    template = Path(shutil.copytree(history.template, tmp_path / "template", symlinks=True))
    shell = Shell(tmp_path / "bin", template, target)
    (tmp_path / "old").mkdir()
    (new,) = blocks("A new project")
    assert "The tool answered: 3" in shell.type(new, tmp_path)
    project = tmp_path / "my-agent"
    assert_clean(project)

    git(tmp_path / "old", "init", "--quiet")
    (adopt,) = blocks("An agent in an existing repository")
    assert "0 errors, 0 warnings" in shell.type(adopt, tmp_path / "old")
    assert_clean(tmp_path / "old")

    write_tool(project, target)
    (checks,) = blocks("A tool with its test")
    assert re.search(r"\d+ passed|pass \d+", shell.type(checks, project))

    (evals,) = blocks("A capability")
    assert "5 cases, 0 failed" in shell.type(evals, project)
    assert_clean(project)

    (store,) = blocks("A collection")
    assert "0 errors, 1 warnings" in shell.type(store, project), "a secret is missing"
    assert 'type: "valkey"' in (project / "collections" / "sessions.collection.md").read_text()
    assert_clean(project)

    agent = project / ("src/my_agent/agent.py" if target.endswith("-python") else "src/agent.ts")
    agent.write_text(agent.read_text().replace(PROMPT, OUR_PROMPT))
    commit(project, "Our prompt")
    for path in (template / "template").rglob("agent.*"):
        if path.is_file():
            path.write_text(path.read_text().replace(PROMPT, f"{PROMPT} Be kind."))
    commit(template, "Another prompt")
    git(template, "tag", "9999.1")
    (update,) = blocks("An update")
    merging, look = update.split("uv run pytest")[0], update[update.index("uv run pytest") :]
    assert f"{agent.relative_to(project)}:" in shell.type(merging, project)
    text = agent.read_text()
    ours, _ = text.split("<<<<<<< before updating\n")[1].split("=======\n")
    agent.write_text(re.sub(r"(?ms)^<<<<<<< .*?^>>>>>>> [^\n]*\n", lambda _: ours, text))
    shell.type(look, project)
    assert_clean(project)
    assert OUR_PROMPT in agent.read_text()
    assert re.search("lookup_?[oO]rder", agent.read_text())


def test_the_commands_of_the_readme_work(history: History, tmp_path: Path) -> None:
    template = Path(shutil.copytree(history.template, tmp_path / "template", symlinks=True))
    shell = Shell(tmp_path / "bin", template, "strands-python")
    readme = (ROOT / "README.md").read_text("utf-8")
    first, use, in_clone, _ = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    assert "MODEL is not set" in shell.type(first, tmp_path)
    shutil.rmtree(tmp_path / "my-agent")
    # The environment of these tests has no pip.
    typed = {**clean_environment(), "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}"}
    said = subprocess.run(
        ["sh", "-ec", in_clone], cwd=template, env=typed, stdout=subprocess.PIPE, check=True
    )
    assert b"My name is Ada." in said.stdout
    shutil.rmtree(tmp_path / "my-agent")
    # Without a terminal Copier can ask nothing.
    use = use.replace("copier copy", "copier copy --defaults").replace(" chat ", " check ")
    assert "0 errors, 0 warnings" in shell.type(use, tmp_path)
