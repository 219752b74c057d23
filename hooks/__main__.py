"""The command line: `python -m hooks COMMAND`, from the root of the template."""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import click

from hooks import examples, habits, releases, snapshots, weights
from hooks.check import check as find_mistakes
from hooks.committed import CommitError, resolve
from hooks.loading import template_root
from hooks.rendering import RenderError, render
from hooks.review import markdown
from hooks.review import review as compare
from hooks.template import TemplateError
from hooks.variants import TARGETS, VARIANTS, answers_of

FAILURES = (
    OSError,
    CommitError,
    RenderError,
    TemplateError,
    examples.ExampleError,
    releases.ReleaseError,
    snapshots.OptionError,
)


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Check the template, render it, and review its renders.

    Exit codes: 0 fine, 1 findings or changes to review, 2 wrong use.
    """


@cli.command()
@click.option("--against", metavar="REF", help="The commit to compare with.")
def check(against: str | None) -> None:
    """Find mistakes that Copier does not report.

    Prints a line for each mistake: its id, its place, and the remedy. A comparison with REF (by
    default the last release in this clone) finds mistakes that only an update would reveal.

    Without a mistake, prints the tokens of each room. CHANGELOG.md must name each room that grew
    by more than 5 % since the last release. Then counts habits of translated English: their
    number must not grow.

    \b
    Example:
      python -m hooks check
    """
    root = template_root()
    last = releases.last_here(root)
    commit = resolve(root, against) if against else last.commit if last else None
    with weights.weighing(root) as weigh:
        counts = habits.count_habits(root)
        findings = find_mistakes(root, commit)
        now = {} if findings else weigh()
    if not findings:
        release, before = weights.read_last(root)
        for line in weights.table(release, before, now):
            click.echo(line)
        click.echo(f"habits of translated English: {habits.describe(counts)}")
        findings = list(weights.check_weights(before, now, releases.unreleased(root)))
        findings += habits.check_habits(counts)
    for finding in findings:
        click.echo(finding)
    if findings:
        raise click.ClickException(f"findings: {len(findings)}")
    click.echo("no findings")


@cli.command("habits")
def habits_() -> None:
    """List habits of translated English.

    Prints a line for each: its place and its name. `check` fails if their number grows.

    \b
    Example:
      python -m hooks habits
    """
    for habit in habits.list_habits(template_root()):
        click.echo(habit)


def known_variant(_: click.Context, __: click.Parameter, value: str) -> str:
    """Return the name of a variant. Raises BadParameter for other names."""
    if value in VARIANTS:
        return value
    similar = get_close_matches(value, VARIANTS) or TARGETS
    raise click.BadParameter(
        f"'{value}' is unknown. hooks/variants.py lists the names, such as {', '.join(similar)}."
    )


@cli.command("render")
@click.argument("variant", callback=known_variant)
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
def render_(variant: str, dest: Path) -> None:
    """Render a variant into a new folder.

    Renders VARIANT from the working tree, with uncommitted edits, into DEST.

    \b
    Example:
      python -m hooks render strands-python+openai /tmp/my-agent
    """
    root = template_root()
    with new_folder(dest) as folder:
        render(root, answers_of(variant), folder)
    click.echo(f"{variant} is in {dest}")


@contextmanager
def new_folder(dest: Path) -> Iterator[Path]:
    """Yield a temporary folder, and copy it to DEST unless the caller raises."""
    dest = dest.resolve()  # the last part of `x/..` is not a valid name for a folder
    if dest.exists() and any(dest.iterdir()):
        raise click.BadParameter(f"{dest} is not empty", param_hint="DEST")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / dest.name
        yield folder
        shutil.copytree(folder, dest, dirs_exist_ok=True)


@cli.command()
@click.argument("name")
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@click.option("--source", default=examples.SOURCE, show_default=True, help="The source of updates.")
@click.option("--push", metavar="URL", help="Also push it to this repository; only for a release.")
def example(name: str, dest: Path, source: str, push: str | None) -> None:
    """Build the example NAME of tests/examples in a new folder.

    Renders it from the working tree into DEST, and applies its owner's changes.

    \b
    Example:
      python -m hooks example order-desk /tmp/order-desk
    """
    root = template_root()
    if name not in examples.names(root):
        known = ", ".join(examples.names(root))
        raise click.BadParameter(f"use one of {known}", param_hint="NAME")
    version = examples.released(root) if push else ""
    with new_folder(dest) as folder:
        examples.make(root, name, folder, source)
    click.echo(f"{name} is in {dest}")
    if push:
        is_new = examples.publish(dest, push, version)
        click.echo(f"{push} {'has' if is_new else 'had'} {version}")


@cli.command("snapshots")
@click.option("--write", is_flag=True, help="Rewrite the snapshots. Read the diff afterwards.")
def snapshots_(write: bool) -> None:
    """Compare the snapshots with the renders.

    Prints the differences between tests/snapshots/ and the renders of all variants.

    \b
    Example:
      python -m hooks snapshots --write
    """
    root = template_root()
    fresh = snapshots.rendered(root)
    if write:
        snapshots.write(root, fresh)
        click.echo("snapshots are written; review them with git diff")
        return
    if changes := compare(snapshots.recorded(root), fresh):
        click.echo(markdown(changes, fresh, "the snapshots"))
        raise click.ClickException(
            "the snapshots differ from the renders; if the renders are right, run"
            " python -m hooks snapshots --write"
        )
    click.echo("the snapshots match the renders")


@cli.command()
@click.option("--against", metavar="REF", required=True, help="The commit to compare with.")
def review(against: str) -> None:
    """Show the changes in the renders.

    Compares the renders of the working tree, with uncommitted edits, with the snapshots of the
    commit REF. Prints each hunk once, with its renders, as Markdown.

    Exit codes: 0 no change, 1 changes, 2 the comparison failed.

    \b
    Example:
      python -m hooks review --against origin/main
    """
    try:
        root = template_root()
        old = snapshots.committed(root, resolve(root, against))
        new = snapshots.trees(root)
    except FAILURES as error:
        raise click.UsageError(str(error)) from error
    for variant in sorted(old.keys() - new.keys()):
        click.echo(f"- no longer rendered: {variant}\n")
    changes = compare({variant: old[variant] for variant in new}, new)
    # As bytes, because a summary is UTF-8 on every system.
    click.echo(markdown(changes, new, against).encode(), nl=False)
    if changes:
        raise click.exceptions.Exit(1)


@cli.command()
@click.argument("version", required=False)
@click.option("--push", is_flag=True, help="Push the release to `origin`.")
@click.option("--tags", is_flag=True, help="Only create the tags that this clone lacks.")
def release(version: str | None, push: bool, tags: bool) -> None:
    """Release the last commit as VERSION.

    Checks that everything is committed, that the template and its snapshots are valid, and that
    CHANGELOG.md describes the changes. Then renames the section `next` there to VERSION, tags the
    commit (signed, if Git has a key), adds it to hooks/releases.txt, and writes the weights of its
    rooms to hooks/weights.json.

    \b
    Example:
      python -m hooks release 0.5.0 --push
    """
    if tags == (version is not None) or (tags and push):
        raise click.UsageError("give a VERSION to release, or --tags")
    root = template_root()
    if version is None:
        for name in releases.make_tags(root, releases.releases(root)):
            click.echo(f"tagged {name}")
        return
    commit = releases.make_release(root, version).commit
    click.echo(f"{version} is {commit[:10]}")
    command = ["git", "push", "--atomic", "origin", "HEAD", f"refs/tags/{version}"]
    if not push:
        click.echo(f"to publish it, type  {shlex.join(command)}")
    elif subprocess.run(command, cwd=root).returncode:
        raise click.ClickException(f"the push failed; try again  {shlex.join(command)}")


@cli.command()
@click.argument("version")
def notes(version: str) -> None:
    """Print the section of VERSION in CHANGELOG.md, for the page of the release.

    \b
    Example:
      python -m hooks notes 0.5.0
    """
    click.echo(releases.section(template_root(), version))


def main() -> int:
    """Run the command line. Each error is one line on standard error."""
    try:
        code = cli.main(prog_name="python -m hooks", standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
        code = error.exit_code
    except FAILURES as error:
        message = str(error)
        code = 1
    except click.Abort:
        message = "interrupted"
        code = 1
    else:
        # Click returns the code of an Exit, or the result of the command.
        return code or 0
    click.echo(f"error: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
