"""Measurements: `uv run python -m tests.benchmarks [NAME …]`, from the root of the template.

A figure of a busy machine is no verdict, so this is a command and not a test. It needs a quiet
machine, and about ten minutes for all figures.
"""

import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path

import click

from tests.benchmarks import figures
from tests.benchmarks.copying import copy, disk
from tests.benchmarks.plot import plot
from tests.benchmarks.subjects import others

FIGURES: dict[str, Callable[..., figures.Samples]] = {
    "start": figures.start,
    "turn": figures.turn,
    "history": figures.history,
    "long": figures.long,
    "sessions": figures.sessions,
    "ping": figures.ping,
    "memory": figures.memory,
    "cpu": figures.cpu,
    "store": figures.store,
    "copy": copy,
    "disk": disk,
}


def floor_of(name: str, samples: figures.Samples) -> str:
    """The subject that another one is compared with, or "" for none."""
    floors = (f"{name} bare", f"{name} at 5,000", name.partition("+")[0], "empty")
    return next((one for one in floors if one in samples and one != name), "")


def rows(figure: str, samples: figures.Samples) -> list[tuple[str, str, float, float, float, str]]:
    """Of each subject its median, least and greatest sample, and its ratio to its floor."""
    found = []
    for name, values in samples.items():
        floor = floor_of(name, samples)
        ratio = statistics.median(values) / statistics.median(samples[floor]) if floor else 0.0
        shown = f"{ratio:.2f} of {floor}" if floor else ""
        found.append((figure, name, statistics.median(values), min(values), max(values), shown))
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(list(FIGURES)))
@click.option("--runs", default=5, show_default=True, help="How often each is measured.")
@click.option("--other", "given", multiple=True, help="NAME=COMMAND: a server of others, at PORT.")
@click.option("--svg", type=click.Path(path_type=Path), help="Where to write a plot.")
def main(names: tuple[str, ...], runs: int, given: tuple[str, ...], svg: Path | None) -> None:
    """Measure renders beside their floors, and print a table."""
    found = []
    for name in names or FIGURES:

        def progress(text: str, name: str = name) -> None:
            click.echo(f"{name}: {text}", err=True)

        found += rows(name, FIGURES[name](figures.Bench(runs, others(given), progress)))
    click.echo(f"\n{os.cpu_count()} CPUs, {platform.platform()}, {runs} runs\n", err=True)
    click.echo("| figure | of | median | least - greatest | ratio |\n|---|---|---|---|---|")
    for figure, name, median, least, most, ratio in found:
        click.echo(f"| {figure} | {name} | {median:.3g} | {least:.3g} - {most:.3g} | {ratio} |")
    click.echo()
    for name in names or FIGURES:
        click.echo(f"{name}: {FIGURES[name].__doc__}")
    if svg:
        svg.write_text(plot(found))


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks")
