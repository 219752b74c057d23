"""Measurements: `uv run python -m tests.benchmarks [NAME …]`, from the root of the template.

A figure of a busy machine is no verdict, so this is a command and not a test. It needs a quiet
machine, and about ten minutes for all figures.
"""

import json
import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path

import click

from tests.benchmarks import figures
from tests.benchmarks.copying import copy, disk, update
from tests.benchmarks.plot import plot
from tests.benchmarks.subjects import others

FIGURES: dict[str, Callable[..., figures.Samples]] = {
    "start": figures.start,
    "reply": figures.reply,
    "turn": figures.turn,
    "history": figures.history,
    "long": figures.long,
    "sessions": figures.sessions,
    "clients": figures.clients,
    "ping": figures.ping,
    "memory": figures.memory,
    "cpu": figures.cpu,
    "store": figures.store,
    "copy": copy,
    "update": update,
    "disk": disk,
}


# A figure, its subject, the median, least and greatest sample, and the ratio to the floor.
Row = tuple[str, str, float, float, float, str]


def floor_of(name: str, samples: figures.Samples) -> str:
    """The subject that another one is compared with, or "" for none."""
    base, comma, detail = name.partition(",")
    way = " served" if name.endswith(" served") else ""
    floors = [f"{base} bare{comma}{detail}", f"{name} at 5,000", f"empty{way}"]
    if not detail:
        floors += [base.partition("+")[0], base.partition(" with ")[0]]
    return next((floor for floor in floors if floor in samples and floor != name), "")


def rows(figure: str, samples: figures.Samples) -> list[Row]:
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
@click.option("--ratios", type=click.Path(path_type=Path), help="Fail where one is 15 % above.")
@click.option("--write", is_flag=True, help="Write the ratios to that file instead.")
@click.option("--svg", type=click.Path(path_type=Path), help="Where to write a plot.")
def main(
    names: tuple[str, ...],
    runs: int,
    given: tuple[str, ...],
    ratios: Path | None,
    write: bool,
    svg: Path | None,
) -> None:
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
    if ratios and write:
        ratios.write_text(json.dumps(ratios_of(found), indent=1) + "\n")
    elif ratios and (worse := regressions(ratios_of(found), json.loads(ratios.read_text()))):
        raise click.ClickException("\n".join(["slower by more than 15 %:", *worse]))


def ratios_of(found: list[Row]) -> dict[str, float]:
    """The ratio of each figure that has a floor. Percentiles are left out: they vary more."""
    return {
        f"{figure} {name}": round(float(shown.split()[0]), 2)
        for figure, name, *_, shown in found
        if shown and not name.endswith("p99")
    }


def regressions(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """What is more than 15 % above the ratio that it had."""
    return [
        f"{name}: {ratio} of its floor, {before[name]} before"
        for name, ratio in now.items()
        if name in before and ratio > 1.15 * before[name]
    ]


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks")
