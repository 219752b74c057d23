"""The image, really built and run: from the owner's lock, not as root, on a read-only root."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import httpx
import pytest

from hooks.variants import TARGETS
from tests.deploy.base_images import base_images
from tests.installed import NPM, clean_environment, rendered, uv
from tests.stores.servers import free_port, wait_for

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

SECRET = "sentinel-of-env"
# Their packages for other platforms, which a lock names, are not in every mirror.
NATIVE = ("oxlint", "typescript")


@cache
def engine() -> str:
    """The container engine that runs here, with the base images; skips where there is none."""
    for name in ("docker", "podman"):
        if shutil.which(name) and run(name, "info").returncode == 0:
            for image in base_images():
                if (
                    run(name, "image", "inspect", image).returncode
                    and run(name, "pull", "-q", image).returncode
                ):
                    pytest.skip(f"{image} cannot be pulled: see tests/deploy/base_images.py")
            return name
    pytest.skip("no container engine runs here")


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; its output and its errors are in `stdout`."""
    return subprocess.run(
        words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def build(project: Path, tag: str) -> subprocess.CompletedProcess[str]:
    # podman leaves HEALTHCHECK out of its own format.
    options = ["--format", "docker"] if engine() == "podman" else []
    return run(engine(), "build", *options, "-t", tag, ".", cwd=project)


def lock(project: Path) -> None:
    is_python = (project / "pyproject.toml").exists()
    command = [*uv(), "lock", "-q"] if is_python else [*NPM, "install", "--package-lock-only"]
    subprocess.run(command, cwd=project, env=clean_environment(), check=True)


@pytest.fixture(params=TARGETS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A render with all that must not get into an image, and without a lock."""
    engine()
    source = rendered(request.param, deploy="container")
    project = Path(shutil.copytree(source, tmp_path / request.param))
    for path in (".env", "src/.env.local", ".git/config", "tests/data", "node_modules/x"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(f"SECRET={SECRET}\n")
    if (project / "package.json").exists():
        manifest = json.loads((project / "package.json").read_text())
        for name in NATIVE:
            del manifest["devDependencies"][name]
        (project / "package.json").write_text(json.dumps(manifest))
    return project


@pytest.fixture
def image(project: Path) -> Iterator[str]:
    tag = f"test-{project.name}-{os.getpid()}"
    yield tag
    run(engine(), "rmi", "-f", tag)


def test_an_image_is_built_from_the_lock_and_runs(project: Path, image: str) -> None:
    is_python = (project / "pyproject.toml").exists()
    advice = "uv lock" if is_python else "npm install"
    missing = build(project, image)
    assert missing.returncode
    assert f"Run {advice} and commit the file." in missing.stdout

    lock(project)
    manifest = project / ("pyproject.toml" if is_python else "package.json")
    text = manifest.read_text()
    anchor, other = ('"cachetools>', '"cachetools<6,>') if is_python else ("^11.5", "^10.0")
    assert anchor in text
    manifest.write_text(text.replace(anchor, other))
    stale = build(project, image)
    assert stale.returncode
    assert advice in stale.stdout
    manifest.write_text(text)

    built = build(project, image)
    assert built.returncode == 0, built.stdout
    port = str(free_port())
    options = ["--network", "host", "--read-only", "--cap-drop", "ALL", "-e", f"PORT={port}"]
    started = run(engine(), "run", "-d", *options, "--name", image, image)
    try:
        assert started.returncode == 0, started.stdout
        look(image, port)
        stopped = run(engine(), "stop", "-t", "30", image)
        assert stopped.returncode == 0, stopped.stdout
        state = run(engine(), "inspect", image, "--format", "{{.State.ExitCode}}")
        assert state.stdout.split()[-1] == "0"
    finally:
        run(engine(), "rm", "-f", image)


def test_a_changed_source_line_renews_no_layer_of_dependencies(project: Path, image: str) -> None:
    lock(project)
    assert build(project, image).returncode == 0
    first = layers(image)
    is_python = (project / "pyproject.toml").exists()
    source = project / ("src/my_agent/routes.py" if is_python else "src/routes.ts")
    source.write_text(source.read_text() + ("# Changed.\n" if is_python else "// Changed.\n"))
    assert build(project, image).returncode == 0
    shared = sum(a == b for a, b in zip(first, layers(image), strict=True))
    base = re.findall(r"^FROM (\S+:\S+) AS base", (project / "Dockerfile").read_text(), re.M)
    assert shared > len(layers(base[0])), "the dependencies are a layer of their own"


def layers(image: str) -> list[str]:
    found = run(engine(), "image", "inspect", image, "--format", "{{json .RootFS.Layers}}")
    return list(json.loads(found.stdout.splitlines()[-1]))


def look(container: str, port: str) -> None:
    """Ask a running container what it is."""

    def inside(*words: str) -> subprocess.CompletedProcess[str]:
        return run(engine(), "exec", container, *words)

    def is_up() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/ping").status_code == 200
        return False

    wait_for("the container", is_up)
    reply = httpx.post(f"http://127.0.0.1:{port}/invocations", json={"prompt": "Hello."})
    assert '"turn":1' in reply.text
    assert inside("id", "-u").stdout.strip() != "0"
    assert "Read-only" in inside("touch", "/app/x").stdout
    assert "sh" not in inside("cat", "/proc/1/comm").stdout
    found = inside("grep", "-rl", SECRET, "/app")
    assert (found.stdout, found.returncode) == ("", 1)
    assert inside("ls", "/app/tests").returncode
    for name in ("pytest", "mypy", "prettier"):  # for development only
        assert not inside("find", "/app", "-maxdepth", "5", "-name", name).stdout
    form = "{{json .Config.Healthcheck.Test}}"
    kind, *test = json.loads(
        run(engine(), "image", "inspect", container, "--format", form).stdout.splitlines()[-1]
    )
    assert kind == "CMD"
    assert inside(*test).returncode == 0
    assert inside("env", "PORT=1", *test).returncode != 0
