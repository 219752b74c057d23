"""A copy of a render in which a machine of random schedules runs, with an agent of its own."""

import shutil
from pathlib import Path

from tests.installed import NODE

HERE = Path(__file__).parent
VARIANT = "+approval"  # which render of a target it is


def arrange(target: str, project: Path, folder: Path) -> list[str]:
    """Copy an installed render into `folder`; return the command that runs the machine in there.

    The variable SCHEDULES is how many it runs; FIRST_FAILURE: without looking for a shorter one.
    """
    shutil.copytree(project / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    own, tests = HERE / "agents" / target.replace("-", "_"), folder / "tests"
    tests.mkdir(exist_ok=True)
    if target.endswith("-python"):
        shutil.copy(own.with_suffix(".py"), folder / "src" / "my_agent" / "agent.py")
        for name in ("conftest.py", "own_fixtures.py"):
            shutil.copy(project / "tests" / name, tests)
        for name in ("script.py", "scripted_model.py"):
            shutil.copy(project / "tests" / "harness" / name, tests)
        shutil.copy(HERE / "python_machine.py", tests)
        python = str(project / ".venv" / "bin" / "python")
        paths = f"pythonpath={folder / 'src'} {tests}"
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:logging", "-c", "/dev/null"]
        return [python, "-m", "pytest", "tests/python_machine.py", *options, "-o", paths]
    shutil.copy(own.with_suffix(".ts"), folder / "src" / "agent.ts")
    helpers = tests / "harness"
    helpers.mkdir()
    for name in ("script.ts", "scripted_model.ts"):
        shutil.copy(project / "tests" / "harness" / name, helpers)
    shutil.copy(HERE / "typescript_machine.ts", helpers)
    shutil.copy(project / "package.json", folder)
    (folder / "node_modules").symlink_to((project / "node_modules").resolve())
    return [str(NODE), "tests/harness/typescript_machine.ts"]
