"""The instructions of a Dockerfile, and the step that installs Debian packages."""

import os
import subprocess
from pathlib import Path


def instructions(project: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile and their arguments."""
    text = (project / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def calls_of_apt(project: Path, packages: str, folder: Path) -> list[str]:
    """The arguments of each `apt-get` of the image, for this text of `apt.txt`."""
    (folder / "apt.txt").write_text(packages)
    calls = folder / "calls"
    program = folder / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    (step,) = (rest for word, rest in instructions(project) if word == "RUN" and "apt" in rest)
    step = step.replace("/var/lib/apt/lists", str(folder / "lists"))
    own = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", step], cwd=folder, env=own, check=True)
    return calls.read_text().splitlines() if calls.exists() else []
