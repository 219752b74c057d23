"""Where a render spends its time: `python -m tests.benchmarks.profiles TARGET`.

Each sample of a profiler is counted for the function of the render that was at work, or waited
for a library, and for the package whose code ran. The start of the process is in it: take
more turns to see less of it.
Python needs py-spy: `uv run --with py-spy python -m …`.
"""

import json
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hooks.variants import TARGETS
from tests.benchmarks.subjects import LIMIT, Running, Subject, bare, ours, running, session

# From the outermost to the innermost: the file and the name of each function of one sample.
Stack = list[tuple[str, str]]
OWN = re.compile(r"(?:src/my_agent|src)/([\w/]+)\.(?:py|ts)$")
PACKAGE = re.compile(r".*/(?:site-packages|node_modules)/((?:@[^/]+/)?[^/]+)")


def place(stack: Stack) -> tuple[str, str]:
    """The innermost function of the render in a sample, and the package whose code ran."""
    own = (
        (OWN.search(file), name) for file, name in reversed(stack) if "/node_modules/" not in file
    )
    function = next((f"{found[1]}: {name}" for found, name in own if found), "(none)")
    file, name = stack[-1]
    if found := PACKAGE.match(file):
        return function, found[1]
    if OWN.search(file):
        return function, "its own code"
    return function, name if name in ("(garbage collector)", "(program)") else "the runtime"


def python_stacks(text: str) -> Iterator[tuple[Stack, float]]:
    """The samples of `py-spy record --format raw --full-filenames`."""
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        pairs = [re.match(r"(.*) \((.*?)(?::\d+)?\)$", frame) for frame in frames.split(";")]
        yield [(pair[2], pair[1]) for pair in pairs if pair], float(count)


def node_stacks(profile: dict[str, Any]) -> Iterator[tuple[Stack, float]]:
    """The samples of a `.cpuprofile`."""
    nodes = {node["id"]: node for node in profile["nodes"]}
    parents = {child: node for node in nodes.values() for child in node.get("children", [])}
    stacks = {}
    for number, node in nodes.items():
        stack: Stack = []
        above: dict[str, Any] | None = node
        while above:
            frame = above["callFrame"]
            stack.insert(0, (frame["url"], frame["functionName"]))
            above = parents.get(above["id"])
        stacks[number] = stack
    for number, taken in zip(profile["samples"], profile["timeDeltas"], strict=True):
        if stacks[number][-1][1] != "(idle)":
            yield stacks[number], taken


def under_profiler(subject: Subject, out: Path) -> Subject:
    """The same server; its profile is in `out` when it has ended."""
    if "-python" in subject.name:
        record = ["py-spy", "record", "--rate", "100", "--format", "raw", "--full-filenames"]
        command = (*record, "--output", str(out), "--", *subject.command)
    else:
        node, *rest = subject.command
        options = ["--cpu-prof", f"--cpu-prof-dir={out.parent}", f"--cpu-prof-name={out.name}"]
        # The exit of Node itself: a server of ours lets nobody call process.exit.
        ending = "import { exit } from 'node:process'; process.on('SIGTERM', () => exit())"
        options += ["--import", f"data:text/javascript,{ending}"]
        command = (node, *options, *rest)
    return Subject(subject.name, tuple(command), subject.folder, subject.settings)


def end(server: Running, is_python: bool) -> None:
    """Let the server end, so that the profiler writes what it saw."""
    pid = server.process.pid
    if is_python:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pid = int(children[0])
    os.kill(pid, signal.SIGTERM)
    server.process.wait(LIMIT)


def profiled(subject: Subject, messages: int, turns: int) -> Counter[tuple[str, str]]:
    """Milliseconds of a turn by function and package."""
    is_python = "-python" in subject.name
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile"
        with running(under_profiler(subject, out), HISTORY_MESSAGES=messages) as server:
            name = session()
            for _ in range(messages // 2 + turns):
                server.turn(name)
            end(server, is_python)
        text = out.read_text()
    found: Counter[tuple[str, str]] = Counter()
    # A sample of py-spy stands for 10 ms, one of Node for so many microseconds.
    each = (10 if is_python else 0.001) / (messages // 2 + turns)
    for stack, weight in python_stacks(text) if is_python else node_stacks(json.loads(text)):
        if stack:
            found[place(stack)] += weight * each  # type: ignore[assignment]
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", type=click.Choice(list(TARGETS)))
@click.option("--messages", default=40, show_default=True, help="How many the session keeps.")
@click.option("--turns", default=1000, show_default=True, help="How many turns are taken.")
def main(target: str, messages: int, turns: int) -> None:
    """Print where the turns of a render spend their CPU time, beside their floor."""
    render = profiled(ours(target), messages, turns)
    floor = profiled(bare(target), messages, turns)
    click.echo("| milliseconds of a turn | render | floor |\n|---|---|---|")
    packages = [by_package(render), by_package(floor)]
    for package, _ in (packages[0] + packages[1]).most_common(14):
        click.echo(f"| {package} | {packages[0][package]:.2f} | {packages[1][package]:.2f} |")
    click.echo(f"| all | {render.total():.2f} | {floor.total():.2f} |")
    click.echo("\n| of it in | by | render |\n|---|---|---|")
    for (function, package), taken in render.most_common(14):
        click.echo(f"| {function} | {package} | {taken:.2f} |")


def by_package(found: Counter[tuple[str, str]]) -> Counter[str]:
    """Milliseconds by package alone."""
    sums: Counter[str] = Counter()
    for (_, package), taken in found.items():
        sums[package] += taken
    return sums


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks.profiles")
