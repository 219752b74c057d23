"""The structure of a render: arrows that run one way, and nothing that is defined twice."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from hooks.snapshots import recorded_whole
from hooks.variants import MODELS, STORES
from tests.conftest import ROOT, Rendered

SNAPSHOTS = recorded_whole(ROOT)
OF_MODELS = {model for models in MODELS.values() for model in models}
CAPABILITIES = [name for name in SNAPSHOTS if "+" in name and name.split("+")[1] not in OF_MODELS]

VARIANTS = [
    pytest.param(f"{framework}-{language}{options}", marks=[pytest.mark.slow] if options else [])
    for framework in ("strands", "vercel")
    for language in ("python", "typescript")
    for options in (
        *("", *(f"+{store}" for store in STORES), "+agentcore", "+valkey+agentcore"),
        *("+tracing", "+mcp", "+auth", "+compaction", "+ai-sdk-ui", "+ui", "+background"),
        "+knowledge-base",
    )
]
# Which rooms of the harness may import which, also in functions. The modules beside the rooms and
# the rooms in CORE are the core; of its modules, `enabled` alone knows the other rooms.
BELOW = {
    "core": set[str](),
    "collections": {"core"},
    "store": {"core", "collections"},
    "memory": {"core", "collections", "store"},
    "extraction": {"core", "memory"},
    "tracing": {"core"},
    "mcp_servers": {"core"},
    "approval": {"core"},
    "effects": {"core", "collections", "store"},
    "auth": {"core", "store"},
    "compaction": {"core"},
    "fallback": {"core"},
    "evals": {"core"},
    "chat_route": {"core"},
    "background": {"core", "store", "chat_route"},
    "metrics": {"core"},
    "page": {"core", "chat_route"},
}
CORE = {"http", "models", "sessions", "terminal"}
# A capability whose modules are in the room `http`.
OF_CHAT_ROUTE = {"chat_route", "stored_messages"}
LIGHT = {"capability", "contract", "findings", "log", "modules", "settings"}
IMPORT = re.compile(
    r"^(?:import|export)\b[^'\"]*?from\s*'(\.[^']+)'|\bimport\s*\(?'(\.[^']+)'",
    re.MULTILINE,
)
FUNCTION = re.compile(
    r"^(?:export )?(?:async )?function\*? (\w+)[^\n]*\n(.*?)^}", re.MULTILINE | re.DOTALL
)


@pytest.fixture(params=VARIANTS)
def sources(request: pytest.FixtureRequest, rendered: Rendered) -> Path:
    """The source folder of a render."""
    project = rendered(request.param)
    return project / "src" / "my_agent" if "python" in request.param else project / "src"


def modules(sources: Path) -> list[Path]:
    return sorted(path for path in sources.rglob("*") if path.suffix in (".py", ".ts"))


def imports(path: Path) -> Iterator[Path]:
    """The modules that a module imports, also in functions and for types only."""
    text = path.read_text("utf-8")
    if path.suffix == ".ts":
        for one, other in IMPORT.findall(text):
            yield (path.parent / (one or other)).resolve()
        return
    for node in relative_imports(text):
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        names = [base / f"{alias.name}.py" for alias in node.names]
        found = [name for name in names if name.exists()]
        whole = [base.with_suffix(".py"), base / "__init__.py"]
        yield from found or [one for one in whole if one.exists()]


@cache
def relative_imports(text: str) -> list[ast.ImportFrom]:
    """Those of a module; most of its text is the same in many renders."""
    nodes = ast.walk(ast.parse(text))
    return [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def room(path: Path, sources: Path) -> str:
    parts = path.relative_to(sources / "harness").parts
    if path.stem in OF_CHAT_ROUTE:
        return "chat_route"
    return parts[0] if len(parts) > 1 and parts[0] not in CORE else "core"


def test_the_harness_imports_nothing_outside_itself(sources: Path) -> None:
    harness = sources / "harness"
    outside = {
        f"{path.relative_to(sources)} imports {imported.relative_to(sources)}"
        for path in modules(harness)
        for imported in imports(path)
        if not imported.is_relative_to(harness)
    }
    assert outside == set()


def test_the_folder_of_an_owner_has_few_modules(sources: Path) -> None:
    names = {path.stem for path in sources.iterdir() if path.is_file()}
    own = {"agent", "model", "own_capabilities", "own_memory", "routes"}
    assert names <= {"__init__", "app", "main", *own}


def test_no_module_imports_itself_by_way_of_others(sources: Path) -> None:
    graph = {path: set(imports(path)) - {path} for path in modules(sources)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(path.name for path in error.args[1]))


def test_rooms_import_only_lower_rooms(sources: Path) -> None:
    for path in modules(sources / "harness"):
        above = room(path, sources)
        if (above, path.stem) == ("core", "enabled"):
            continue
        found = {room(imported, sources) for imported in imports(path)} - {above}
        assert found <= BELOW[above], f"{path.relative_to(sources)} imports {found}"
        if above == "collections":
            core = {
                imported.stem for imported in imports(path) if room(imported, sources) == "core"
            }
            assert core <= LIGHT, f"{path.name} imports {core}"


def test_every_room_is_known() -> None:
    paths = {Path(path) for tree in SNAPSHOTS.values() for path in tree}
    parts = [
        path.parts[path.parts.index("harness") + 1 :] for path in paths if "harness" in path.parts
    ]
    rooms = {names[0] for names in parts if len(names) > 1}
    assert rooms - CORE == BELOW.keys() - {"core", "chat_route"}


@pytest.mark.parametrize("variant", CAPABILITIES)
def test_a_capability_changes_one_source_of_the_plain_render(variant: str) -> None:
    """A capability plugs in: of the core, `enabled` alone knows it."""
    tree = SNAPSHOTS[variant]
    plain = SNAPSHOTS[variant.partition("+")[0]]
    changed = [path for path, file in plain.items() if tree[path] != file]
    found = {Path(path).name for path in changed if path.endswith((".py", ".ts"))}
    if any(memory in variant for memory in ("agentcore", "knowledge-base")):
        found -= {"app.ts", "main.py"}  # they pass the owner's module
    assert found - {"enabled.py", "enabled.ts"} == set()


def test_no_function_is_defined_twice(sources: Path) -> None:
    known: dict[str, str] = {}
    for path in modules(sources):
        for name, body in functions(path.read_text("utf-8"), path.suffix):
            place = f"{path.relative_to(sources)}: {name}"
            assert known.setdefault(body, place) == place, f"{place} is {known[body]} again"


@cache
def functions(text: str, suffix: str) -> list[tuple[str, str]]:
    """The functions of a module, each with what it does; those of one line may be alike."""
    if suffix == ".ts":
        return [(name, body) for name, body in FUNCTION.findall(text) if body.count("\n") > 1]
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [one for one in node.body if not is_docstring(one)]
            if len(body) > 1:
                found.append((node.name, "\n".join(ast.dump(one) for one in body)))
    return found


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_an_assignment_sets_one_name() -> None:
    sources = [*(ROOT / "template").rglob("*.py"), *(ROOT / "hooks").glob("*.py")]
    joined = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and not is_swap(node)
    ]
    assert joined == []


def is_swap(node: ast.Assign) -> bool:
    """Whether a value reads a target that the same assignment sets."""
    targets = {ast.unparse(target) for target in ast.walk(node.targets[0])}
    values = {ast.unparse(value) for value in ast.walk(node.value)}
    return bool(targets & values)
