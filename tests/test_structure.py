"""The structure of a render: arrows that run one way, and nothing that is defined twice."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import Rendered

VARIANTS = [
    pytest.param(f"{framework}-{language}{options}", marks=[pytest.mark.slow] if options else [])
    for framework in ("strands", "vercel")
    for language in ("python", "typescript")
    for options in (
        *("", "+valkey", "+s3", "+custom", "+agentcore", "+valkey+agentcore"),
        "+ai-sdk-ui",
    )
]
# Which rooms may import which; a room is a folder, and the modules beside them are the core.
BELOW = {
    "collections": {"core"},
    "store": {"core", "collections"},
    "memory": {"core", "collections"},
}
IMPORT = re.compile(
    r"^(?:import|export)\b[^'\"]*?from\s*'(\.[^']+)'|^import\s*'(\.[^']+)'", re.MULTILINE
)
FUNCTION = re.compile(
    r"^(?:export )?(?:async )?function\*? (\w+)[^\n]*\n(.*?)^}", re.MULTILINE | re.DOTALL
)


@pytest.fixture(params=VARIANTS)
def sources(request: pytest.FixtureRequest, rendered: Rendered) -> Path:
    """The source folder of a render."""
    project = rendered(request.param)
    return project / "src" / "app" if (project / "src" / "app").exists() else project / "src"


def modules(sources: Path) -> list[Path]:
    return sorted(path for path in sources.rglob("*") if path.suffix in (".py", ".ts"))


def imports(path: Path) -> Iterator[Path]:
    """The modules of the render that a module imports when it is loaded."""
    text = path.read_text("utf-8")
    if path.suffix == ".ts":
        for one, other in IMPORT.findall(text):
            yield (path.parent / (one or other)).resolve()
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            names = [base / f"{alias.name}.py" for alias in node.names]
            found = [name for name in names if name.exists()]
            whole = [base.with_suffix(".py"), base / "__init__.py"]
            yield from found or [one for one in whole if one.exists()]


def room(path: Path, sources: Path) -> str:
    parts = path.relative_to(sources).parts
    return parts[0] if len(parts) > 1 else "core"


def test_no_module_imports_itself_by_way_of_others(sources: Path) -> None:
    graph = {path: set(imports(path)) - {path} for path in modules(sources)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(path.name for path in error.args[1]))


def test_the_rooms_import_what_is_below_them(sources: Path) -> None:
    for path in modules(sources):
        above = room(path, sources)
        found = {room(one, sources) for one in imports(path)} - {above}
        # Types are shared by all; the commands of a room may use the runtime that is above it.
        assert found <= BELOW.get(above, found), f"{path.relative_to(sources)} imports {found}"
        if above == "collections":
            core = {one.stem for one in imports(path) if room(one, sources) == "core"}
            assert core <= {"contract", "settings"}, f"{path.name} imports {core}"


def test_no_function_is_defined_twice(sources: Path) -> None:
    known: dict[str, str] = {}
    for path in modules(sources):
        for name, body in functions(path):
            place = f"{path.relative_to(sources)}: {name}"
            assert known.setdefault(body, place) == place, f"{place} is {known[body]} again"


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """The functions of a module, each with what it does; those of one line may be alike."""
    text = path.read_text("utf-8")
    if path.suffix == ".ts":
        for name, body in FUNCTION.findall(text):
            if body.count("\n") > 1:
                yield name, body
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [one for one in node.body if not is_docstring(one)]
            if len(body) > 1:
                yield node.name, "\n".join(ast.dump(one) for one in body)


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
