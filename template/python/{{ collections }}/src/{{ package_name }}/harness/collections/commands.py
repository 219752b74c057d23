"""The command `erase-project`, which erases all data of this project."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Collection

import click

from ..capability import App
from ..findings import refuse_errors
from .capability import Declarations
from .check import stores_sessions
from .erasure import REMAINS, RUNNING, Keeper, ProjectErasure

Use = Callable[[ProjectErasure], Awaitable[list[str]]]
UNCHANGED = "Nothing was erased."


class WrongArgument(click.ClickException):
    """Unlike UsageError, prints only its message, as in TypeScript."""

    exit_code = 2


@click.command("erase-project")
@click.option("--yes", metavar="NAME", help="Erase without a question: NAME is the project's name.")
@click.option(
    "--unshared",
    multiple=True,
    metavar="COLLECTION",
    help="Also erase memories that name no project: no other project uses the collection's memory.",
)
@click.pass_obj
def erase_project(app: App, yes: str | None, unshared: tuple[str, ...]) -> None:
    """Erase all sessions, memories and other stored data of this project.

    Exit with status 1 if any remain, or if a store was not looked at.
    """
    declarations = Declarations.find(app.load_capabilities())
    refuse_errors(declarations.check())
    project_id = getattr(declarations.settings, "project_id", None)
    name = "/".join(filter(None, [declarations.project.agent_id, project_id]))
    memories = [it.collection_id for it in declarations.project.used() if not stores_sessions(it)]
    for id in unshared:
        if id not in memories:
            raise WrongArgument(f"Collection {id} is not a memory of this agent. {UNCHANGED}")
    if yes is not None and yes != name:
        raise WrongArgument(_refusal(yes, name))

    def run(use: Use) -> tuple[ProjectErasure, list[str]]:
        return asyncio.run(_run(app, unshared, project_id, use))

    erasure, lines = run(ProjectErasure.count)
    click.echo("\n".join([f"Project {name} has stored:", *lines]))
    if erasure.is_empty:
        click.echo(f"Nothing of project {name} was erased: there is nothing to erase.")
        sys.exit(erasure.has_remains)
    click.echo(f"{REMAINS} {RUNNING}")
    if yes is None:
        typed = _ask(f"Type {name} to erase all this")
        if typed != name:
            raise click.ClickException(_refusal(typed, name))
    # New connections: a server may have closed the earlier connections meanwhile.
    erasure, lines = run(ProjectErasure.erase)
    click.echo("\n".join(lines))
    if erasure.has_remains:
        again = " Run the command again." if erasure.is_retryable else ""
        raise click.ClickException(f"Not all data of project {name} is erased.{again}")
    click.echo(f"Project {name} is erased.")


async def _run(
    app: App, unshared: Collection[str], project_id: str | None, use: Use
) -> tuple[ProjectErasure, list[str]]:
    keepers = [it for it in app.load_capabilities() if isinstance(it, Keeper)]
    erasure = ProjectErasure(keepers, unshared, project_id)
    try:
        return erasure, await use(erasure)
    finally:
        for keeper in keepers:
            await keeper.close()


def _ask(question: str) -> str:
    """Return the answer to a question; "" at the end of the input."""
    try:
        return str(click.prompt(question, default="", show_default=False)).strip()
    except click.Abort:
        click.echo()
        return ""


def _refusal(typed: str, name: str) -> str:
    quoted = json.dumps(typed, ensure_ascii=False)
    return f"{quoted} is not the name of this project, {name}. {UNCHANGED}"
