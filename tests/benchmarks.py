"""Measurements: `python -m tests.benchmarks copy`, from the root of the template.

A figure of a busy machine is no verdict, so these are commands and not tests.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from hooks.rendering import without_git
from tests.conftest import ROOT


def seconds(template: Path, dest: Path, answers: tuple[str, ...] = ()) -> float:
    """The wall time of one `copier copy` with `answers` and defaults for the rest."""
    # Without bytecode Copier's own start takes twice as long and hides the rest.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "copier", "copy", "-q", "--defaults"]
    command += [word for answer in answers for word in ("-d", answer)]
    start = time.perf_counter()
    subprocess.run(
        [*command, str(template), str(dest)],
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the template."""


@main.command()
@click.option("--runs", default=11, show_default=True, help="How often each is copied.")
@click.option("-d", "--data", "answers", multiple=True, help="An answer, as copier takes it.")
def copy(runs: int, answers: tuple[str, ...]) -> None:
    """Print how many times longer a copy takes than a copy of an empty template."""
    with without_git(ROOT) as full, tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        (folder / "empty" / "template").mkdir(parents=True)
        (folder / "empty" / "copier.yml").write_text("_subdirectory: template\n")
        both = {"full": (full, answers), "empty": (folder / "empty", ())}
        times: dict[str, list[float]] = {name: [] for name in both}
        for number in range(runs + 1):
            # Taking turns lets both feel the same load; the first is a warm-up.
            for name, (template, given) in both.items():
                taken = seconds(template, folder / f"{name}-{number}", given)
                times[name] += [taken] if number else []
    one, other = (statistics.median(times[name]) for name in both)
    click.echo(f"{one:.2f} s and {other:.2f} s: ratio {one / other:.2f}")


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks")
