"""The commands `sessions list | show | restore | end`: the store, without a turn."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import click

from ..contract import ERRORS, SESSION_ID
from ..parts import Parts
from ..settings import read_settings
from .backends import Backend, Conflict, Unavailable, Unsupported
from .operations import UUID7
from .session_tools import describe_turn, report_of, take_back

CONFLICT = "Another instance went on with this session; nothing was changed."
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _session(_: Any, __: Any, value: str) -> str:
    if not re.fullmatch(SESSION_ID, value):
        raise click.BadParameter(ERRORS["invalid_session_id"][1])
    return value


def _checkpoint(_: Any, __: Any, value: str) -> str:
    if not re.fullmatch(UUID7, value):
        raise click.BadParameter("A checkpoint is a UUIDv7 in lower case.")
    return value


SESSION = click.argument("session", callback=_session)


@click.group()
def sessions() -> None:
    """List the sessions in the store, show one, take one back, or end one."""


@sessions.command("list")
@JSON
def list_sessions(as_json: bool) -> None:
    """Print the ids of all sessions."""
    ids = sorted(_with_store(lambda store: store.sessions()))
    count = f"{len(ids)} session{'' if len(ids) == 1 else 's'}"
    click.echo(_json({"sessions": ids}) if as_json else "\n".join([*ids, count]))


@sessions.command()
@SESSION
@JSON
def show(session: str, as_json: bool) -> None:
    """Print what is stored of SESSION: its last turn, its checkpoints, and what was set aside."""
    report = _with_store(lambda store: report_of(store, session))
    if not (report["bytes"] or report["checkpoints"] or report["set_aside"]):
        raise click.ClickException(f"Nothing is stored of session {session}.")
    if as_json:
        return click.echo(_json(report))
    lines = [f"session {session}: {describe_turn(report) if report['bytes'] else 'no turn'}"]
    lines += [f"checkpoint {one['id']}: {describe_turn(one)}" for one in report["checkpoints"]]
    lines += [f"set aside {name}" for name in report["set_aside"]]
    return click.echo("\n".join(lines))


@sessions.command()
@SESSION
@click.argument("checkpoint", callback=_checkpoint)
def restore(session: str, checkpoint: str) -> None:
    """Take SESSION back to CHECKPOINT, an id that `sessions show` prints."""
    turn = _with_store(lambda store: take_back(store, session, checkpoint), changes=True)
    click.echo(f"Session {session} is back at turn {turn}.")


@sessions.command()
@SESSION
def end(session: str) -> None:
    """Delete all that is stored of SESSION."""
    _with_store(lambda store: store.end(session), changes=True, ends=session)
    click.echo(f"Session {session} has ended.")


def _with_store(
    do: Callable[[Backend], Coroutine[Any, Any, Any]], *, changes: bool = False, ends: str = ""
) -> Any:
    """What `do` returns; its failure is one line on standard error, and 1 as exit code."""
    settings, found = read_settings()
    found += Parts.check(settings)
    if errors := [one["message"] for one in found if one["severity"] == "error"]:
        raise click.ClickException("\n".join(errors))
    try:
        parts = Parts(settings)
        if parts.store is None or parts.collection is None:
            raise Unsupported(f"There is no store. {parts.contacts()[1]}.")
        if changes and not parts.collection.writeback.enabled:
            raise Unsupported(f"Collection {parts.collection.collection_id} is read-only.")
        return asyncio.run(_run(parts, do(parts.store), ends))
    except Conflict:
        raise click.ClickException(CONFLICT) from None
    except (Unavailable, Unsupported) as error:
        raise click.ClickException(str(error)) from None


async def _run(parts: Parts, doing: Coroutine[Any, Any, Any], ends: str) -> Any:
    try:
        result = await doing
        for mirror in parts.mirrors if ends else ():
            mirror.end(ends)
        return result
    finally:
        await parts.close()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
