"""The renders of `@aws/agentcore`, to be measured beside ours: a folder, and what to type next.

Its command asks for an account before it renders, so its templates, which npm has, are rendered
here by the same engine with its default answers. Changed are the model, which is the one of the
benchmarks, and the MCP client, which would call another machine. A second render of each has
OpenAI's client, for the start to the first reply.
"""

import json
import shlex
import subprocess
from pathlib import Path

import click

from tests.benchmarks.subjects import MODELS, WITH_OPENAI
from tests.installed import NODE, NPM, clean_environment, uv

VERSION = "0.30.0"
TEMPLATES = {
    "strands-python": "python/http/strands",
    "strands-typescript": "typescript/http/strands",
    "vercel-typescript": "typescript/http/vercelai",
}
RENDER = """
import { readdirSync, readFileSync, writeFileSync, statSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import Handlebars from 'handlebars'

const [from, to, modelProvider] = process.argv.slice(2)
const helpers = {
  eq: (one, other) => one === other,
  or: (...all) => all.slice(0, -1).some(Boolean),
  includes: (list, item) => Array.isArray(list) && list.includes(item),
  some: (list, key) => Array.isArray(list) && list.some((item) => item[key]),
}
for (const [name, helper] of Object.entries(helpers)) Handlebars.registerHelper(name, helper)
const identityProviders = [{ name: 'openai', envVarName: 'OPENAI_API_KEY' }]
const answers = { name: 'peer', modelProvider, identityProviders, hasMemory: false }
for (const path of readdirSync(from, { recursive: true })) {
  const [source, target] = [join(from, path), join(to, path)]
  if (statSync(source).isDirectory()) continue
  mkdirSync(join(target, '..'), { recursive: true })
  const render = Handlebars.compile(readFileSync(source, 'utf8'), { noEscape: true })
  writeFileSync(target, render(answers))
}
"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Make the peer's renders in FOLDER, and print the option that measures each."""
    folder.mkdir(parents=True)
    run(folder, *NPM, "init", "-y", "--silent")
    package = f"@aws/agentcore@{VERSION}"
    run(folder, *NPM, "install", "--silent", "handlebars@4", "typescript@5")
    run(folder, *NPM, "pack", "--silent", package)
    (archive,) = folder.glob("*.tgz")
    run(folder, "tar", "xzf", str(archive))
    (folder / "render.mjs").write_text(RENDER)
    for target, template in TEMPLATES.items():
        source = folder / "package" / "dist" / "assets" / template / "base"
        (model,) = MODELS.glob(f"{target.replace('-', '_')}.*")
        make = python if model.suffix == ".py" else typescript
        project = folder / target
        run(folder, str(NODE), "render.mjs", str(source), str(project), "Bedrock")
        show(f"{target} peer", make(folder, project, model.read_text()))
        project = folder / f"{target}-openai"
        run(folder, str(NODE), "render.mjs", str(source), str(project), "OpenAI")
        # LOCAL_DEV: the key is read from the environment.
        show(f"{target} peer{WITH_OPENAI}", ["env", "LOCAL_DEV=1", *make(folder, project, None)])


def show(name: str, command: list[str]) -> None:
    """Print the option that measures a server."""
    click.echo(f"--other {shlex.quote(f'{name}={shlex.join(command)}')}")


def python(_: Path, project: Path, model: str | None) -> list[str]:
    """Install a render in Python, and return the command that starts it."""
    if model:
        (project / "model" / "load.py").write_text(
            f"{model}\n\ndef load_model() -> OfflineModel:\n    return OfflineModel()\n"
        )
    (project / "mcp_client" / "client.py").write_text(
        "def get_streamable_http_mcp_client() -> None:\n    return None\n"
    )
    # Without the port it listens at 8080.
    serve = "import os\n\nfrom main import app\n\napp.run(port=int(os.environ['PORT']))\n"
    (project / "serve.py").write_text(serve)
    run(project, *uv(), "sync", "-q", "--no-install-project", "--compile-bytecode")
    return [str(project / ".venv" / "bin" / "python"), str(project / "serve.py")]


def typescript(folder: Path, project: Path, model: str | None) -> list[str]:
    """Install and compile a render in TypeScript, and return the command that starts it."""
    manifest = json.loads((project / "package.json").read_text())
    if client := next(project.glob("mcp_client/client.ts"), None):
        client.write_text("export const getStreamableHttpMcpClient = (): null => null\n")
        # No 0.3 can be installed.
        manifest["dependencies"]["bedrock-agentcore"] = "^0.4"
        (project / "package.json").write_text(json.dumps(manifest))
    load = project / "model" / "load.ts"
    if not model:
        # The API that the provider of the benchmarks and our renders have.
        model = load.read_text().replace("return openai(", "return openai.chat(")
    else:
        model += "\nexport function loadModel() {\n  return new OfflineModel()\n}\n"
        if "ai" in manifest["dependencies"]:
            model = model.replace("'v4'", "'v3'")  # what version 6 calls the same interface
    load.write_text(model)
    run(project, *NPM, "install", "--silent", "--no-audit")
    # It reports errors in the peer's own types, and writes the modules nevertheless.
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    subprocess.run([str(NODE), str(compiler)], cwd=project, stdout=subprocess.DEVNULL)
    return [str(NODE), str(project / "dist" / "main.js")]


def run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, env=clean_environment(), check=True)


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks.peer")
