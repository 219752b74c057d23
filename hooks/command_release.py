"""The command `python -m hooks release`."""

from pathlib import Path

import click

from hooks import lint, snapshots
from hooks.committed import CommitError, read_or_refuse
from hooks.loading import template_root
from hooks.releases import (
    LIST,
    Release,
    ReleaseError,
    commit_of,
    last_here,
    make_tags,
    next_version,
    releases,
    section,
)


@click.command("release")
@click.argument("version", required=False)
@click.option("--tags", is_flag=True, help="Only make the tags that this clone lacks.")
def release(version: str | None, tags: bool) -> None:
    """Release the last commit as VERSION.

    Checks that nothing is uncommitted, that the template and its snapshots are fine and that
    CHANGELOG.md says what changes in a project. Then it adds version and commit to
    hooks/releases.txt and makes the tags. It pushes nothing.

    \b
    Example:
      python -m hooks release 0.5.0
    """
    if tags == (version is not None):
        raise click.UsageError("give a VERSION to release, or --tags")
    root = template_root()
    try:
        listed = releases(root)
        if version is not None:
            listed.append(ready(root, version, listed))
        made = make_tags(root, listed)
    except (CommitError, ReleaseError) as error:
        raise click.ClickException(str(error)) from error
    for name in made:
        click.echo(f"tagged {name}")
    if version is None:
        if not made:
            click.echo("no tag is missing")
        return
    (root / LIST).write_text("".join(f"{release}\n" for release in listed), "utf-8", newline="\n")
    click.echo(
        f"{version} is {listed[-1].commit[:10]} and added to {LIST.as_posix()}; now\n"
        f"  git commit -m 'Note release {version}' {LIST.as_posix()}\n"
        f"  git push origin HEAD {version}"
    )


def ready(root: Path, version: str, listed: list[Release]) -> Release:
    """The last commit as `version`. Raises ReleaseError when it is not ready for that."""
    next_version(version, listed)
    if read_or_refuse(root, "status", "--porcelain"):
        raise ReleaseError("something is not committed: a release is a commit, so commit it first")
    commit = read_or_refuse(root, "rev-parse", "HEAD").decode().strip()
    if commit_of(root, version) not in (None, commit):
        raise ReleaseError(f"the tag {version} is on another commit: use another version")
    section(root, version)
    last = last_here(root)
    if listed and last != listed[-1]:
        raise ReleaseError(f"{listed[-1].version} is not in this clone: git fetch --unshallow")
    findings = lint.lint(root, against=last.commit if last else None)
    if findings:
        raise ReleaseError(f"findings: {len(findings)}; run python -m hooks check")
    if snapshots.compare(snapshots.recorded(root), snapshots.rendered(root)):
        raise ReleaseError("the snapshots are not as rendered: run python -m hooks snapshots")
    return Release(version, commit)
