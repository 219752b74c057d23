"""The quality of what is rendered in TypeScript: clean under strict tools, tested offline."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hooks.variants import VARIANTS
from tests.conftest import ROOT
from tests.installed import (
    NODE,
    NPM,
    clean_environment,
    environment,
    installed,
    installed_alone,
    packages,
    rendered,
    target_of,
)
from tests.matrix import ALONE, Row, params

# What the tests need besides a render: knip, and the oldest Node that a render takes.
TOOLS = b'{"dependencies": {"knip": "^5.88", "node": "~22.19"}, "allowScripts": {"node": true}}'
TYPESCRIPT = [name for name in VARIANTS if target_of(name).endswith("-typescript")]
TARGETS = sorted({target_of(name) for name in TYPESCRIPT})
MANAGER_TOOLS = b'{"dependencies": {"pnpm": "^10", "yarn": "^1.22"}}'
MANAGERS = {
    "npm": [*NPM, "install", "--legacy-peer-deps", "--no-audit", "--no-fund"],
    "pnpm": [str(NODE), "{tools}/pnpm/bin/pnpm.cjs", "install"],
    "yarn": [str(NODE), "{tools}/yarn/bin/yarn.js", "install", "--non-interactive"],
}
ROWS = [row for row in ALONE if row.name in TYPESCRIPT]
OFFLINE = {"NODE_OPTIONS": f"--import={(ROOT / 'tests' / 'support' / 'no_network.mjs').as_uri()}"}

SCHEMAS = """
import { jsonSchema, streamText } from 'ai'
const { mergeTools } = await import(process.argv[1])
const { OfflineModel } = await import(process.argv[2])
let made = 0
const schema = { type: 'object', properties: {} }
const inputSchema = () => jsonSchema(() => (made++, schema))
const own = { mine: { inputSchema, execute: () => 1 }, bare: { execute: () => 1 } }
for (const answer of [1, 2]) {
  own.mine.execute = () => answer
  const tools = mergeTools(own, [['added', { inputSchema, execute: () => 0 }]])
  if (tools.mine.execute() !== answer) throw new Error('an execute of before')
  await streamText({ model: new OfflineModel(), prompt: 'Hello.', tools }).consumeStream()
}
if (made !== 1) throw new Error(`made ${made} times`)
"""

pytestmark = pytest.mark.slow


def run(project: Path, *command: str, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=project,
        env={**clean_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout}"
    return result.stdout


@pytest.mark.job("linted", "typed")
@pytest.mark.parametrize("row", params(ROWS, "typed"))
def test_a_render_is_clean_for_its_own_linters_and_types(row: Row) -> None:
    run(installed(row.name), *NPM, "run", "lint")


@pytest.mark.job("tested")
@pytest.mark.parametrize("row", [row for row in params(ROWS, "tested") if not row.marks])
def test_a_render_passes_its_own_tests_offline(row: Row) -> None:
    assert re.search(r"pass \d+", run(installed(row.name), *NPM, "test", **OFFLINE))


@pytest.mark.full
@pytest.mark.job("tested")
@pytest.mark.parametrize("row", params(ROWS, "tested"))
def test_a_render_that_is_installed_alone_passes_its_own_tests(row: Row) -> None:
    assert re.search(r"pass \d+", run(installed_alone(row.name), *NPM, "test", **OFFLINE))


@pytest.mark.full
@pytest.mark.parametrize(
    "variant",
    ["vercel-typescript", pytest.param("strands-typescript", marks=pytest.mark.full)],
)
def test_a_render_passes_its_own_tests_on_the_oldest_node_that_it_takes(variant: str) -> None:
    node = packages(TOOLS) / "node" / "bin" / "node"
    assert run(installed(variant), str(node), "--version").startswith("v22.19.")
    run(installed(variant), str(node), "src/main.ts", "check")
    run(installed(variant), str(node), "--test", "tests/harness/server.test.ts", **OFFLINE)


@pytest.mark.job("used")
@pytest.mark.parametrize("row", params(ROWS, "used"))
def test_a_render_has_no_dependency_file_or_export_that_it_does_not_use(
    row: Row, tmp_path: Path
) -> None:
    # A browser begins with page.js, and the library beside it has more than the page uses.
    entries: list[str] = []
    if row.name.endswith("+ui"):
        entries = ["src/harness/page/page.js", "src/harness/page/*.min.js"]
    # Owners import these.
    entries += ["src/harness/index.ts", "src/harness/vendor.ts", "src/harness/memory/index.ts"]
    entries.append("tests/client.ts")
    # What a capability of another answer imports is exported by every render.
    config = {"entry": ["tests/**/*.test.ts", *entries], "ignoreExportsUsedInFile": True}
    config["ignore"] = ["deploy/main.js"]  # AgentCore runs it, beside src/
    (tmp_path / "knip.json").write_text(json.dumps(config))
    knip = str(packages(TOOLS) / "knip" / "bin" / "knip.js")
    run(installed(row.name), str(NODE), knip, "--config", str(tmp_path / "knip.json"))


@pytest.mark.parametrize("target", TARGETS)
def test_no_package_of_a_render_runs_a_script_when_it_is_installed(target: str) -> None:
    lock = (environment(target) / "node_modules").resolve().parent / "package-lock.json"
    found = json.loads(lock.read_text())["packages"]
    assert [name for name, package in found.items() if package.get("hasInstallScript")] == []


@pytest.mark.job("used")
@pytest.mark.parametrize("row", params(ROWS, "used"))
def test_a_render_declares_the_peers_of_its_packages(row: Row) -> None:
    project = installed(row.name)
    manifest = json.loads((project / "package.json").read_text())
    declared = manifest["dependencies"].keys() | manifest.get("optionalDependencies", {}).keys()
    known, needed, rest = set(declared), set[str](), list(declared)
    while rest:
        path = project / "node_modules" / rest.pop() / "package.json"
        package = json.loads(path.read_text()) if path.exists() else {}
        optional = {
            name for name, it in package.get("peerDependenciesMeta", {}).items() if it["optional"]
        }
        needed |= package.get("peerDependencies", {}).keys() - optional
        brought = package.get("dependencies", {}).keys() - known
        known |= brought
        rest += brought
    assert needed <= known, "npm with --legacy-peer-deps and yarn do not install these"


@pytest.mark.full
@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_render_starts_with_each_package_manager(
    target: str, manager: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(rendered(target), project)
    install = [word.format(tools=packages(MANAGER_TOOLS)) for word in MANAGERS[manager]]
    # Two processes of yarn at once break a shared cache.
    run(project, *install, YARN_CACHE_FOLDER=str(tmp_path / "cache"))
    assert "Hello." in run(project, str(NODE), "src/main.ts", "chat", "Hello.", **OFFLINE)


def test_the_module_that_blocks_the_network_blocks_it() -> None:
    code = "fetch('http://192.0.2.1').catch((error) => console.log(String(error.cause)))"
    assert "offline" in run(ROOT, str(NODE), "-e", code, **OFFLINE)


def test_the_json_schema_of_a_tool_is_made_once_and_the_tool_may_change() -> None:
    project = installed("vercel-typescript")
    harness = project / "src" / "harness"
    modules = [(harness / name).as_uri() for name in ("tools.ts", "echo_model.ts")]
    run(project, str(NODE), "--input-type=module", "-e", SCHEMAS, *modules)
