"""The public surface of the harness in TypeScript: an owner needs nothing else of it."""

import itertools
import json
import re
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from hooks.variants import VARIANTS as ALL
from tests.installed import NODE, NPM, clean_environment, installed, rendered

TYPESCRIPT = [target for target in TARGETS if target.endswith("-typescript")]
USUAL = {
    *(f"strands-typescript{options}" for options in ("", "+anthropic", "+openai")),
    *(f"vercel-typescript{options}" for options in ("", "+anthropic", "+bedrock", "+gateway")),
    *(f"{target}+valkey+agentcore+knowledge-base" for target in TYPESCRIPT),
}
VARIANTS = [
    pytest.param(name, marks=[] if name in USUAL else pytest.mark.full)
    for name in ALL
    if "-typescript" in name
]
IMPORTED = re.compile(r"\bfrom\s+'(\.[^']+)'|\bimport\(\s*'(\.[^']+)'")
PUBLIC = "./harness/index.ts"
# Further doors of the harness, and the files that may use them; None: all.
DOORS: dict[str, set[str] | None] = {
    "./harness/vendor.ts": {"model.ts"},
    "./harness/effects/index.ts": None,
    "./harness/memory/index.ts": None,
}


def imports(text: str) -> set[str]:
    return {one or other for one, other in IMPORTED.findall(text)}


def blocks(page: str) -> list[str]:
    """The sources in a page of the documentation."""
    return re.findall(r"^```ts\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def may_use(name: str, door: str) -> bool:
    if door not in DOORS:
        return False
    users = DOORS[door]
    return users is None or name in users


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_of_an_owner_import_public_names_only(variant: str) -> None:
    project = rendered(variant)
    sources = {path.name: path.read_text("utf-8") for path in (project / "src").glob("*.ts")}
    for page in (project / "docs").glob("*.md"):
        sources[page.name] = "\n".join(blocks(page.read_text("utf-8")))
    found = {
        f"{name} imports {imported}"
        for name, text in sources.items()
        for imported in imports(text)
        if "/harness/" in imported and imported != PUBLIC and not may_use(name, imported)
    }
    assert found == set()


WITH_MEMORY = "valkey+agentcore+knowledge-base"
FIRST = "for (const name of process.argv.slice(1)) await import(name)"


@pytest.mark.full
@pytest.mark.parametrize(
    "variant",
    [f"vercel-typescript+{WITH_MEMORY}", f"strands-typescript+{WITH_MEMORY}"],
)
def test_the_modules_of_an_owner_load_in_any_order(variant: str) -> None:
    project = installed(variant)
    names = sorted(path.name for path in (project / "src").glob("*.ts"))
    names.remove("main.ts")  # it runs a command
    assert {"agent.ts", "model.ts", "own_capabilities.ts", "own_memory.ts"} <= set(names)

    def load(pair: tuple[str, ...]) -> str:
        urls = [(project / "src" / name).as_uri() for name in pair]
        node = [str(NODE), "--input-type=module", "-e", FIRST, *urls]
        return subprocess.run(node, env=clean_environment(), capture_output=True, text=True).stderr

    with ThreadPoolExecutor(2) as pool:
        pairs = list(itertools.permutations(names, 2))
        failures = dict(zip(pairs, pool.map(load, pairs), strict=True))
    assert {pair: error for pair, error in failures.items() if error} == {}


PACKAGE = "@template/harness"
# As sources and tests import it.
HARNESS = re.compile(r"'(?:\./|(?:\.\./)+src/)harness/([^']+)\.ts'")


def build_tarball(project: Path, folder: Path) -> Path:
    """Build the harness of a render as an npm package: Node runs no TypeScript of packages."""
    sources = folder / "harness"
    shutil.copytree(project / "src" / "harness", sources)
    manifest = {
        "name": PACKAGE,
        "version": "1.0.0",
        "type": "module",
        "exports": {"./*": "./*"},
        "dependencies": json.loads((project / "package.json").read_text())["dependencies"],
    }
    (sources / "package.json").write_text(json.dumps(manifest))
    options = json.loads((project / "tsconfig.json").read_text())["compilerOptions"]
    options |= {"noEmit": False, "declaration": True, "rewriteRelativeImportExtensions": True}
    (sources / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    modules = project / "node_modules"
    (sources / "node_modules").symlink_to(modules.resolve())
    run([NODE, modules / "typescript" / "bin" / "tsc"], sources)
    (sources / "node_modules").unlink()
    for path in sources.rglob("*.ts"):
        if not path.name.endswith(".d.ts"):
            path.unlink()
    run([*NPM, "pack", "--offline", "--silent"], sources)
    return next(sources.glob("*.tgz"))


def run(command: list[str | Path], folder: Path) -> None:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "vercel-typescript",
        "strands-typescript",
        "vercel-typescript+ui",
        "strands-typescript+tracing",
        "strands-typescript+valkey+agentcore",
    ],
)
def test_the_harness_works_as_a_package(variant: str, tmp_path: Path) -> None:
    project, copy = installed(variant), tmp_path / "my-agent"
    modules = (project / "node_modules").resolve()
    copy.mkdir()
    for path in project.iterdir():
        if path.is_dir() and path.name != "node_modules" and not path.is_symlink():
            shutil.copytree(path, copy / path.name)
        elif path.is_file():
            shutil.copy(path, copy)
    shutil.rmtree(copy / "src" / "harness")
    helpers = copy / "tests" / "client.ts"  # its folder `harness` is another one
    for path in [*(copy / "src").glob("*.ts"), *(copy / "tests").rglob("*.ts")]:
        if path == helpers:
            continue
        text = HARNESS.sub(rf"'{PACKAGE}/\1.js'", path.read_text("utf-8"))
        path.write_text(text, "utf-8")
    own = copy / "node_modules"
    own.mkdir()
    for path in modules.iterdir():
        (own / path.name).symlink_to(path)
    package = own.joinpath(PACKAGE)
    package.mkdir(parents=True)
    with tarfile.open(build_tarball(project, tmp_path)) as tarball:
        tarball.extractall(tmp_path / "unpacked", filter="data")
    shutil.copytree(tmp_path / "unpacked" / "package", package, dirs_exist_ok=True)
    run([NODE, "--test"], copy)


# As the contract with owners names them; types and further names may be added.
NAMES = {
    *("AgentApp", "runCommand", "Runtime", "TurnRequest", "TurnResult", "Usage", "Turn"),
    *("currentTurn", "Data", "Source", "ToolCall", "ToolResult", "AgentError", "Capability"),
    *("route", "Handler", "CoreSettings", "SettingsOf", "boolean", "integer", "string"),
    *("stringList", "secret", "Finding", "diagnostic", "readSettings", "SessionInfo"),
}


def test_the_public_names_are_documented() -> None:
    project = rendered("strands-typescript")
    index = (project / "src" / "harness" / "index.ts").read_text("utf-8")
    exported = re.findall(r"^export (?:type )?\{([^}]*)\}", index, re.MULTILINE)
    names = {name.strip().removeprefix("type ") for line in exported for name in line.split(",")}
    page = (project / "docs" / "harness.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(names)
    assert names >= NAMES


def test_git_ignores_files_with_secrets(tmp_path: Path) -> None:
    shutil.copy(rendered("strands-typescript") / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    names = [".env", ".env.local", ".env.production", ".env.example"]
    command = ["git", "check-ignore", "--no-index", *names]
    ignored = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert ignored.split() == names[:3]
