"""The blocks of docs/effects.md are files of a project, with a test that passes."""

import re
import shutil
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.installed import (
    NODE,
    check,
    environment,
    link_environment,
    rendered,
    types_known,
)

BLOCK = re.compile(r"```(?:python|ts)\n(.*?)```", re.DOTALL)
LAST_TOOL = re.compile(r"(?m)^((?:export const )?TOOLS.*\w)( ?[\]}])")
TOOLS = {"pay": "pay", "send_email": "sendEmail", "open_ticket": "openTicket"}


@pytest.fixture(params=TARGETS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A project with the tools of the page and their test."""
    target: str = request.param
    project = tmp_path / target / "my-agent"
    shutil.copytree(rendered(f"{target}+effects"), project)
    link_environment(project, environment(target))
    shop, test = BLOCK.findall((project / "docs" / "effects.md").read_text())
    if target.endswith("-python"):
        sources, suffix = project / "src" / "my_agent", ".py"
        imported = f"from .shop import {', '.join(sorted(TOOLS))}\n"
        listed = ", ".join(TOOLS)
        (project / "tests" / "test_shop.py").write_text(test)
    else:
        sources, suffix = project / "src", ".ts"
        imported = f"import {{ {', '.join(TOOLS.values())} }} from './shop.ts'\n"
        names = [f"{name}: {tool}" if name != tool else name for name, tool in TOOLS.items()]
        listed = ", ".join(names if target.startswith("vercel") else TOOLS.values())
        (project / "tests" / "shop.test.ts").write_text(test)
    (sources / f"shop{suffix}").write_text(shop)
    agent = sources / f"agent{suffix}"
    text = agent.read_text()
    first = re.search(r"(?m)^(?:import|from) ", text)
    assert first
    text = text[: first.start()] + imported + text[first.start() :]
    text, count = LAST_TOOL.subn(rf"\1, {listed}\2", text)
    assert count == 1, text
    agent.write_text(text)
    return project


@pytest.mark.slow
def test_the_tools_of_the_page_work_with_their_test(project: Path) -> None:
    if (project / "package.json").exists():
        prettier = "node_modules/prettier/bin/prettier.cjs"
        commands = [
            [str(NODE), "--test", "tests/shop.test.ts"],
            [str(NODE), prettier, "--check", "src/shop.ts", "tests"],
            [str(NODE), "node_modules/typescript/bin/tsc"],
        ]
    else:
        python = str(project / ".venv" / "bin" / "python")
        commands = [
            [python, "-m", "pytest", "-q", "tests/test_shop.py"],
            [python, "-m", "ruff", "format", "--check", "src/my_agent/shop.py", "tests"],
        ]
        target = next(target for target in TARGETS if target in project.parts)
        with types_known(target) as options:
            check(project, python, "-m", "mypy", *options, "src/my_agent/shop.py")
    for command in commands:
        check(project, *command)
