"""The command line: `python -m hooks COMMAND`, from the root of the template."""

import shutil
import sys
import tempfile
from pathlib import Path

import click

from hooks import lint, snapshots
from hooks.command_release import release
from hooks.command_review import review
from hooks.committed import CommitError, resolve
from hooks.loading import template_root
from hooks.releases import ReleaseError, last_here
from hooks.rendering import RenderError, render
from hooks.template import TemplateError
from hooks.variants import VARIANTS, answers_of

DEFAULT = next(iter(VARIANTS))
FAILURES = (
    OSError,
    CommitError,
    ReleaseError,
    RenderError,
    TemplateError,
    snapshots.OptionError,
)


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Work on the template: check it, render it, review what it renders.

    Exit codes: 0 fine, 1 something is to be mended or reviewed, 2 wrong use.
    """


@cli.command()
@click.option("--against", metavar="REF", help="The commit to compare with.")
def check(against: str | None) -> None:
    """Find mistakes that Copier lets pass.

    Prints one line for each: its id, where it is, and what to do. Those that only an update would
    show are found by comparing with REF, which is the last release in this clone by default.

    \b
    Example:
      python -m hooks check
    """
    root = template_root()
    last = last_here(root)
    commit = resolve(root, against) if against else last.commit if last else None
    findings = lint.lint(root, against=commit)
    for finding in findings:
        click.echo(finding)
    if findings:
        raise click.ClickException(f"findings: {len(findings)}")
    click.echo("no findings")


@cli.command("render")
@click.argument("variant", nargs=-1, metavar="[VARIANT]", type=click.Choice(list(VARIANTS)))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
def render_(variant: tuple[str, ...], dest: Path) -> None:
    """Render one variant into a new folder.

    Renders VARIANT of the working tree, uncommitted edits included, into DEST.

    \b
    Example:
      python -m hooks render strands-python+openai /tmp/my-agent
    """
    if len(variant) > 1:
        raise click.UsageError(f"one variant at a time, not {len(variant)}")
    if not variant and str(dest) in VARIANTS:
        raise click.UsageError(f"DEST is missing: where should {dest} be rendered to?")
    root, name = template_root(), variant[0] if variant else DEFAULT
    with tempfile.TemporaryDirectory() as folder:
        # Only a render that worked comes to DEST.
        render(root, answers_of(name), Path(folder) / name)
        try:
            dest.mkdir(parents=True, exist_ok=True)
            if any(dest.iterdir()):
                raise click.BadParameter(f"{dest} is not empty", param_hint="DEST")
            shutil.copytree(Path(folder) / name, dest, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            message = f"cannot write to {dest}: {getattr(error, 'strerror', None) or error}"
            raise click.BadParameter(message, param_hint="DEST") from error
    click.echo(f"{name} is in {dest}")


@cli.command("snapshots")
@click.option("--write", is_flag=True, help="Rewrite the snapshots. Read the diff afterwards.")
def snapshots_(write: bool) -> None:
    """Compare the snapshots with the renders.

    Prints what differs between tests/snapshots/ and what every variant renders now.

    \b
    Example:
      python -m hooks snapshots --write
    """
    root = template_root()
    fresh = snapshots.rendered(root)
    differences = snapshots.compare(snapshots.recorded(root), fresh)
    if write:
        snapshots.write(root, fresh)
        click.echo(f"files changed: {len(differences)}; review them with git diff")
        return
    for difference in differences:
        click.echo(f"{difference}\n")
    if differences:
        raise click.ClickException(
            f"files that are not as rendered: {len(differences)}; if the renders are right, run"
            " python -m hooks snapshots --write"
        )
    click.echo("snapshots are as rendered")


cli.add_command(release)
cli.add_command(review)


def main() -> int:
    """Run the command line with every error on one line of standard error."""
    try:
        code = cli.main(prog_name="python -m hooks", standalone_mode=False)
    except click.ClickException as error:
        message, code = error.format_message(), error.exit_code
    except FAILURES as error:
        message, code = str(error), 1
    except click.Abort:
        message, code = "interrupted", 1
    else:
        # With an Exit click returns its code, otherwise what the command returned.
        return code or 0
    click.echo(f"error: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
