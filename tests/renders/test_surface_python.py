"""The public surface of the harness in Python: an owner needs nothing else of it."""

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hooks.variants import VARIANTS as ALL
from tests.installed import clean_environment, environment, link_environment, rendered

WITH_MEMORY = "valkey+agentcore+knowledge-base"
PYTHON = ("strands-python", "vercel-python")
USUAL = {
    *(f"strands-python{options}" for options in ("", "+anthropic", "+openai")),
    *(f"vercel-python{options}" for options in ("", "+anthropic", "+bedrock", "+gateway")),
    *(f"{target}+{WITH_MEMORY}" for target in PYTHON),
}
VARIANTS = [
    pytest.param(name, marks=[] if name in USUAL else pytest.mark.full)
    for name in ALL
    if "-python" in name
]
# The doors of the harness, and the files that may use them; None: all.
DOORS: dict[str, set[str] | None] = {
    "harness": None,
    "harness.effects": None,
    "harness.memory": None,
    "harness.vendor": {"model.py"},
}


def imports(text: str) -> Iterator[str]:
    """Yield the modules of the package that a source imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            yield node.module


def blocks(page: str) -> list[str]:
    """Return the sources in a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def may_use(name: str, module: str) -> bool:
    if module not in DOORS:
        return False
    users = DOORS[module]
    return users is None or name in users


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_of_an_owner_import_public_names_only(variant: str) -> None:
    project = rendered(variant)
    folder = project / "src" / "my_agent"
    sources = [(path.name, path.read_text("utf-8")) for path in folder.glob("*.py")]
    for page in (project / "docs").glob("*.md"):
        sources += [(page.name, block) for block in blocks(page.read_text("utf-8"))]
    found = {
        f"{name} imports {module}"
        for name, text in sources
        for module in imports(text)
        if module.startswith("harness") and not may_use(name, module)
    }
    assert found == set()


def names_in(source: Path) -> list[str]:
    """Return the list `__all__` of a module."""
    for node in ast.parse(source.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError(source)


@pytest.mark.parametrize(
    "variant", [*PYTHON, f"strands-python+{WITH_MEMORY}", "strands-python+effects"]
)
def test_the_documentation_lists_each_public_name(variant: str) -> None:
    project = rendered(variant)
    harness = project / "src" / "my_agent" / "harness"
    names = {*names_in(harness / "__init__.py")}
    for door in ("effects", "memory"):
        if (harness / door).exists():
            names |= {*names_in(harness / door / "__init__.py")}
    page = (project / "docs" / "harness.md").read_text("utf-8")
    page, _, _ = page.partition("## Files of your own")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row.split("|")[1])]
    assert sorted(listed) == sorted(names)


ORDERS = """
import importlib
import sys

for name in sys.argv[1:]:
    importlib.import_module("my_agent." + name)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("vercel-python", 1),
        pytest.param("vercel-python", 2, marks=pytest.mark.full),
        pytest.param("strands-python", 2, marks=pytest.mark.full),
    ],
)
def test_the_modules_of_an_owner_load_in_any_order(target: str, count: int) -> None:
    """Each is loaded first, or each pair in both orders, in a fresh interpreter."""
    project = rendered(f"{target}+{WITH_MEMORY}")
    names = sorted(path.stem for path in (project / "src" / "my_agent").glob("*.py"))
    names.remove("__init__")
    assert {"agent", "main", "model", "own_capabilities", "own_memory", "routes"} <= {*names}
    python = str(environment(target) / ".venv" / "bin" / "python")
    own = {**clean_environment(), "PYTHONPATH": str(project / "src")}

    def load(order: tuple[str, ...]) -> str:
        command = [python, "-c", ORDERS, *order]
        return subprocess.run(command, env=own, capture_output=True, text=True).stderr

    orders = list(itertools.permutations(names, count))
    with ThreadPoolExecutor(2) as pool:
        failures = dict(zip(orders, pool.map(load, orders), strict=True))
    assert {order: error for order, error in failures.items() if error} == {}


PACKAGE = "separate_harness"
MANIFEST = f"""
[project]
name = "{PACKAGE}"
version = "1.0"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{PACKAGE}"]
"""


def build_wheel(harness: Path, folder: Path) -> Path:
    """Build a wheel from the harness alone."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(MANIFEST, "utf-8")
    shutil.move(harness, folder / PACKAGE)
    build = ["uv", "build", "--wheel", "--quiet", "--out-dir", str(folder / "dist")]
    subprocess.run(build, cwd=folder, check=True)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "vercel-python",
        pytest.param("strands-python", marks=pytest.mark.full),
        pytest.param("strands-python+ui", marks=pytest.mark.full),
        pytest.param("vercel-python+evals", marks=pytest.mark.full),
        pytest.param(f"strands-python+{WITH_MEMORY}", marks=pytest.mark.full),
    ],
)
def test_the_harness_works_as_a_package(variant: str, tmp_path: Path) -> None:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(variant), project)
    link_environment(project, environment(variant.partition("+")[0]))
    wheel = build_wheel(project / "src" / "my_agent" / "harness", tmp_path / "wheel")
    site = tmp_path / "site"
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--offline", "--target", str(site)]
    subprocess.run([*install, "--python", sys.executable, str(wheel)], check=True)
    for path in [*(project / "src").rglob("*.py"), *(project / "tests").rglob("*.py")]:
        text = path.read_text("utf-8")
        text = re.sub(r"\bmy_agent\.harness\b", PACKAGE, text)
        text = re.sub(r"from \.harness\b", f"from {PACKAGE}", text)
        path.write_text(text, "utf-8")
    own = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(project / "src"), str(site)])}
    python = str(project / ".venv" / "bin" / "python")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=project, env=own, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("variant", PYTHON)
def test_git_ignores_all_settings_but_the_example(variant: str, tmp_path: Path) -> None:
    shutil.copy(rendered(variant) / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    names = [".env", ".env.staging", ".env.example"]
    for name in names:
        (tmp_path / name).touch()
    status = ["git", "status", "--porcelain", "-uall"]
    run = subprocess.run(status, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert sorted(run.stdout.split()[1::2]) == [".env.example", ".gitignore"]
