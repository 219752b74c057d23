"""The command `python -m hooks review`."""

import os
from concurrent.futures.process import BrokenProcessPool

import click

from hooks import report, snapshots
from hooks.committed import CommitError, committed, resolve
from hooks.loading import template_root
from hooks.rendering import RenderError
from hooks.review import review as compare
from hooks.template import TemplateError


@click.command("review")
@click.option("--against", metavar="REF", required=True, help="The commit to compare with.")
@click.option(
    "--format",
    type=click.Choice(["terminal", "markdown"]),
    default="terminal",
    help="Text, coloured on a terminal, or Markdown for a pull request.",
)
def review(against: str, format: str) -> None:
    """Show what changes in the renders.

    Compares what the working tree renders, uncommitted edits included, with the snapshots that
    the commit REF keeps. Prints each hunk once, with the renders that have it.

    Exit codes: 0 nothing changes, 1 something does, 2 that could not be found out.

    \b
    Example:
      python -m hooks review --against origin/main
    """
    try:
        root = template_root()
        commit = resolve(root, against)
        old = committed(root, commit)
        new = snapshots.trees(root, processes=os.cpu_count() or 1)
    except (OSError, RenderError, TemplateError, CommitError, BrokenProcessPool) as error:
        raise click.UsageError(str(error)) from error
    found = compare(old, new)
    name = against if commit.startswith(against) else f"{against} ({commit[:10]})"
    if format == "markdown":
        # As bytes: a summary is UTF-8 wherever it is written.
        click.echo(report.markdown(found, name).encode(), nl=False)
    else:
        click.echo(
            report.terminal(found, name), color=False if os.environ.get("NO_COLOR") else None
        )
    if found:
        raise click.exceptions.Exit(1)
