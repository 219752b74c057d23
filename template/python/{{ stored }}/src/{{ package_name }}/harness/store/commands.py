"""The commands `sessions list | show | restore | copy | sweep | end`."""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from ..capability import Capability
from ..collections.capability import Declarations
from ..collections.check import stores_sessions
from ..collections.secrets import unset_variables
from ..contract import ACTOR_ID, ERRORS, SESSION_ID
from ..findings import refuse_errors
from ..settings import CoreSettings
from .base import UUID7, Conflict, DurableStore, StoreUnavailable, TooLarge, Unsupported
from .capability import Store
from .copying import Copy, CopyReport
from .files import SessionFiles
from .snapshot import UNREADABLE, foreign_format, owner_of, read_snapshot

NO_BYTES = ", no snapshot, or too large to read"  # of a checkpoint, both are empty bytes
UNREAD = "it is too large to read"
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
Use = Callable[[DurableStore, Store], Awaitable[Any]]


def _matches(pattern: str, message: str) -> Callable[[Any, Any, str | None], str | None]:
    def check(_: Any, __: Any, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(pattern, value):
            raise click.BadParameter(message)
        return value

    return check


_session = _matches(SESSION_ID, ERRORS["invalid_session_id"][1])
_actor = _matches(ACTOR_ID, ERRORS["invalid_actor"][1])
_checkpoint = _matches(UUID7, "A checkpoint is a UUIDv7 in lower case.")


def _sessions(_: Any, __: Any, ids: tuple[str, ...]) -> list[str]:
    return [str(_session(None, None, id)) for id in ids]


@click.group()
def sessions() -> None:
    """List, show, restore, copy, sweep and end stored sessions."""


@sessions.command("list")
@JSON
def list_sessions(as_json: bool) -> None:
    """Print the ids of all sessions."""
    ids: list[str] = _with_store(lambda store, _: store.sessions())
    count = f"{len(ids)} session{'' if len(ids) == 1 else 's'}"
    click.echo(_json({"sessions": ids}) if as_json else "\n".join([*ids, count]))


@sessions.command()
@click.argument("session", callback=_session)
@JSON
def show(session: str, as_json: bool) -> None:
    """Print the last turn, checkpoints and quarantined snapshots of SESSION."""
    report = _with_store(lambda store, capability: _report(store, session, capability.settings))
    if not (report["stored"] or report["checkpoints"] or report["quarantined"]):
        raise click.ClickException(f"Nothing is stored for session {session}.")
    if as_json:
        return click.echo(_json(report))
    latest = _describe(report) if report["stored"] else "no turn"
    if report["stored"] and report["turn"] is None:
        is_foreign = report["foreign_format"] is not None
        latest += ", so turns are refused" if is_foreign else ", so the next turn quarantines it"
    lines = [f"session {session}: {latest}"]
    for checkpoint in report["checkpoints"]:
        lines.append(f"checkpoint {checkpoint['id']}: {_describe(checkpoint)}")
    lines += [f"quarantined {name}" for name in report["quarantined"]]
    return click.echo("\n".join(lines))


@sessions.command()
@click.argument("session", callback=_session)
@click.argument("checkpoint", callback=_checkpoint)
def restore(session: str, checkpoint: str) -> None:
    """Restore SESSION from CHECKPOINT, an id that `sessions show` prints."""
    turn = _with_store(
        lambda store, capability: _restore(store, session, checkpoint, capability.settings),
        changes=True,
    )
    click.echo(f"Session {session} is back at turn {turn}.")


@sessions.command()
@click.argument("ids", nargs=-1, metavar="[SESSION]...", callback=_sessions)
@click.option("--to", "target", metavar="STORE", help="Copy to a collection or a folder (./kept).")
@click.option("--from", "source", metavar="STORE", help="Copy from a collection or a folder.")
@click.option("--end", "ends", is_flag=True, help="Also end copies of ended sessions.")
def copy(ids: list[str], target: str | None, source: str | None, ends: bool) -> None:
    """Copy the named sessions, or all, to or from another store, even while turns run.

    Run the command again to copy changes. It does not overwrite sessions continued in the target.
    """
    name = target or source
    if not name or (target and source):
        raise click.UsageError("Name a collection or a folder with --to or --from.")
    report: CopyReport = _with_store(
        lambda store, capability: _copy(
            store, capability, name, ids, is_source=not target, ends=ends
        ),
        changes=not target,
    )
    click.echo(f"{_count(report.copied)} copied, {len(report.unchanged)} unchanged.")
    if report.continued:
        message = "continued in the other store, so not overwritten"
        click.echo(f"{_count(report.continued)} {message}: {', '.join(report.continued)}")
    if report.ended:
        message = "ended, now also their copies" if ends else "ended; --end also ends their copies"
        click.echo(f"{_count(report.ended)} {message}: {', '.join(report.ended)}")
    if report.failed:
        lines = [f"session {id} was not copied: {reason}" for id, reason in report.failed.items()]
        raise click.ClickException("\n".join(lines))


def _count(ids: list[str]) -> str:
    return f"{len(ids)} session{'' if len(ids) == 1 else 's'}"


async def _copy(
    store: DurableStore,
    capability: Store,
    name: str,
    ids: list[str],
    *,
    is_source: bool,
    ends: bool,
) -> CopyReport:
    """Copy to or from the store of a collection or folder."""
    other = _open_other(capability, name, is_source)
    source, target = (other, store) if is_source else (store, other)
    try:
        return await Copy(source, target, capability.settings.checkpoints, ends=ends).run(ids)
    finally:
        await other.close()


def _open_other(capability: Store, name: str, is_source: bool) -> DurableStore:
    """Return the store in a folder, or the store that another collection declares."""
    if "/" not in name:
        return _store_of(capability, name, is_source)
    folder = Path(name)
    if is_source and not os.path.isdir(folder):  # unlike `is_dir`, it never raises
        raise click.ClickException(f"There is no folder {folder}.")
    return SessionFiles(folder)


def _store_of(store: Store, id: str, is_source: bool) -> DurableStore:
    """Return the store that another collection declares."""
    collection = store.project.collections.get(id)
    if collection is None or not stores_sessions(collection):
        raise click.ClickException(f"collections/{id}.collection.md declares no session store.")
    if store.collection is None or collection == store.collection:
        raise click.ClickException(f"Collection {id} already stores these sessions. Name another.")
    if collection.backend.type != store.collection.backend.type:
        message = f"This project has no code for backend type {collection.backend.type}. Copy to "
        message += "a folder, switch the project to that type, then copy from the folder."
        raise click.ClickException(message)
    if not is_source and not collection.writeback.enabled:
        raise click.ClickException(f"Collection {id} is read-only.")
    if unset := unset_variables(store.settings, collection):
        raise click.ClickException(f"No store is configured: set {unset[0]}.")
    return store.connect(collection)


@sessions.command()
def sweep() -> None:
    """Delete the files that no turn refers to; the agent deletes most of them itself.

    Uploads of the last hour stay: a running turn may need them.
    """
    count = _with_store(lambda store, _: _sweep(store), changes=True)
    click.echo(f"The files of {count} session{'' if count == 1 else 's'} are swept.")


async def _sweep(store: DurableStore) -> int:
    ids = await store.sessions()
    for id in ids:
        await store.trim_files(id)
    return len(ids)


@sessions.command()
@click.argument("session", required=False, callback=_session)
@click.option("--actor", callback=_actor, help="End all sessions of this actor.")
def end(session: str | None, actor: str | None) -> None:
    """Delete everything stored for SESSION, or for all sessions of an actor."""
    if (session is None) == (actor is None):
        raise click.UsageError("Name a session, or an actor with --actor ID.")
    if session is not None:
        _with_store(lambda store, _: store.end(session), changes=True)
        return click.echo(f"Session {session} has ended.")
    count = _with_store(lambda store, _: _end_all(store, actor), changes=True)
    return click.echo(f"{count} sessions of actor {actor} have ended.")


async def _end_all(store: DurableStore, actor: str | None) -> int:
    """End all sessions of an actor, and return their number."""
    count = 0
    for id in await store.sessions():
        owner = await owner_of(store, id)
        if owner is UNREADABLE:
            message = "is unreadable, so its actor is unknown. It was not ended."
            click.echo(f"Note: session {id} {message}", err=True)
        elif owner == actor:
            await store.end(id)
            click.echo(f"Session {id} has ended.")
            count += 1
    return count


def _with_store(use: Use, changes: bool = False) -> Any:
    """Return the result of `use`; print a failure as one line and exit with code 1."""
    capabilities: list[Capability] = click.get_current_context().obj.load_capabilities()
    refuse_errors(Declarations.find(capabilities).check())
    store = Store.find(capabilities)
    try:
        return asyncio.run(_run(use, store, changes))
    except Conflict:
        message = (
            "Another process changed this session. Nothing was written; run the command again."
        )
        raise click.ClickException(message) from None
    except (StoreUnavailable, Unsupported) as error:
        raise click.ClickException(str(error)) from None


async def _run(use: Use, store: Store, changes: bool) -> Any:
    if store.collection is None:
        raise click.ClickException("No collection of this agent stores sessions.")
    if store.durable is None:
        missing = unset_variables(store.settings, store.collection)[0]
        raise click.ClickException(f"No store is configured: set {missing}.")
    if changes and not store.is_writable:
        raise click.ClickException(f"Collection {store.collection.collection_id} is read-only.")
    try:
        return await use(store.durable, store)
    finally:
        await store.close()


async def _report(store: DurableStore, session_id: str, settings: CoreSettings) -> dict[str, Any]:
    stored = await store.load(session_id)
    latest = _summary(stored.snapshot if stored else b"", settings)
    if isinstance(stored, TooLarge):
        latest["foreign_format"] = UNREAD
    checkpoints = [
        {"id": id, **_summary(await store.load_checkpoint(session_id, id) or b"", settings)}
        for id in await store.checkpoints(session_id)
    ]
    return {
        "session_id": session_id,
        "stored": stored is not None,
        **latest,
        "checkpoints": checkpoints,
        "quarantined": await store.quarantined(session_id),
    }


def _summary(snapshot: bytes, settings: CoreSettings) -> dict[str, Any]:
    """Return the fields of a snapshot to show; `turn` is None for an unreadable snapshot."""
    fields = ("turn", "actor", "created_at", "restored_from")
    summary: dict[str, Any] = dict.fromkeys((*fields, "summary_before", "foreign_format"))
    readable = read_snapshot(snapshot, settings.max_snapshot_bytes)
    if readable is not None:
        value = json.loads(readable)
        summary |= {key: (value | value["app_data"]).get(key) for key in fields}
        summary["created_at"] = re.sub(r"[+]00:00$", "Z", str(summary["created_at"]))
        summary["summary_before"] = _summary_before(value)
    else:
        summary["foreign_format"] = foreign_format(snapshot)
    return summary | {"bytes": len(snapshot)}


def _summary_before(snapshot: dict[str, Any]) -> int | None:
    """Return the number of the turn after a summary; None without a summary."""
    turns = snapshot["app_data"].get("turns")
    messages = snapshot["data"]["messages"]
    if turns is None:
        return None
    at = turns[0]["at"] if turns else len(messages)
    return snapshot["app_data"]["turn"] - len(turns) + 1 if at else None


def _describe(summary: dict[str, Any]) -> str:
    """Return a summary in one line, without characters that control the terminal."""
    if summary["turn"] is None:
        size = f", {summary['bytes']} bytes" if summary["bytes"] else ""
        reason = summary["foreign_format"]
        return f"unreadable{size}: {reason}" if reason else f"unreadable{size or NO_BYTES}"
    actor = f"actor {summary['actor']}" if summary["actor"] is not None else "no actor"
    line = f"turn {summary['turn']}, {actor}, {summary['created_at']}, {summary['bytes']} bytes"
    origin = summary["restored_from"]
    line += f", restored from {origin}" if origin else ""
    before = summary["summary_before"]
    line += f", with a summary before turn {before}" if before else ""
    return "".join(char if char.isprintable() else "?" for char in line)


async def _restore(
    store: DurableStore, session_id: str, checkpoint: str, settings: CoreSettings
) -> int:
    """Save a checkpoint as the latest snapshot, and return its turn."""
    copy = await store.load_checkpoint(session_id, checkpoint)
    snapshot = read_snapshot(copy, settings.max_snapshot_bytes) if copy else None
    if snapshot is None:
        problem = "has no checkpoint" if copy is None else "has an unreadable checkpoint"
        raise click.ClickException(f"Session {session_id} {problem} {checkpoint}.")
    stored = await store.load(session_id)
    expected = stored.revision if stored else None
    if stored and read_snapshot(stored.snapshot, settings.max_snapshot_bytes) is None:
        await store.quarantine(session_id, stored.revision)
        expected = None
    value = json.loads(snapshot)
    # The turns keep their idempotency keys: a retry of a stored turn returns its reply.
    value["app_data"]["restored_from"] = checkpoint
    # The approved tools of that turn, and its effects, may have run since.
    value["app_data"].pop("pending", None)
    value["app_data"].pop("records", None)
    await store.save(session_id, json.dumps(value, ensure_ascii=False).encode(), expected)
    return int(value["app_data"]["turn"])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
