"""The command line: `python -m tests.mutation`, from the root of the template."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from tests.mutation.runner import run
from tests.mutation.targets import TARGETS


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--target", "name", type=click.Choice(list(TARGETS)), default=next(iter(TARGETS)))
@click.option("--verbose", is_flag=True, help="Print what the tests print.")
def main(names: tuple[str, ...], name: str, verbose: bool) -> None:
    """Seed faults into a copy of a render, and see whether its own tests find them.

    Takes the faults whose name holds one of the NAMEs, or all. Prints for each the first test
    that failed. Exits with 1 when the tests passed with a fault in the render.

    \b
    Example:
      python -m tests.mutation --target strands-python "committed" "cut"
    """
    target = TARGETS[name]
    chosen = [f for f in target.faults if not names or any(part in f.name for part in names)]
    if not chosen:
        raise click.UsageError(f"no fault is called {' or '.join(names)}")
    missed = 0
    # Two at a time, because two cores are what a small machine has.
    with ThreadPoolExecutor(2) as pool:
        for fault, outcome in zip(chosen, pool.map(partial(run, target), chosen), strict=True):
            missed += outcome.verdict != "failed"
            click.echo(f"{outcome.verdict:6}  {fault.name}: {outcome.first_failure}")
            if verbose:
                click.echo(outcome.output)
    if missed:
        raise click.ClickException(f"not found: {missed} of {len(chosen)} faults")
    click.echo(f"found: all {len(chosen)} faults")


if __name__ == "__main__":
    main(prog_name="python -m tests.mutation")
