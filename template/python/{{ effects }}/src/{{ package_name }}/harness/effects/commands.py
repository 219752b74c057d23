"""The commands `effects list | run | settle`."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import click

from ..capability import App, Capability
from ..contract import ERRORS, SESSION_ID, AgentError
from ..sessions.session_store import InProcess
from ..sessions.sessions import Sessions
from ..settings import CoreSettings

Use = Callable[[Any, Iterable[str]], Awaitable[Any]]  # the Outbox and the ids of sessions
SESSIONS = click.argument("ids", nargs=-1, metavar="[SESSION]...")
NO_STORE = "Sessions are in the process of the agent, so other processes cannot read its effects."
NO_LIST = "The sessions cannot be listed ({}). Name the sessions (`settle`: --session)."


@click.group()
def effects() -> None:
    """List, run and settle the effects of tools in stored sessions."""


@effects.command("list")
@SESSIONS
@click.option("--arguments", "shows_arguments", is_flag=True, help="Also print the arguments.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_effects(ids: tuple[str, ...], shows_arguments: bool, as_json: bool) -> None:
    """Print the open and failed effects of the named sessions, or of all.

    A started effect is unknown when its time limit has passed.
    """
    rows: list[dict[str, Any]] = _run(_list, ids)
    if not shows_arguments:
        for row in rows:
            del row["arguments"]
    if as_json:
        return click.echo(_json({"effects": rows}))
    for row in rows:
        words = [row["key"], row["status"], row["tool"], f"session={row['session_id']}"]
        words += [f"turn={row['turn']}", f"age={row['age']}s"]
        words += [_json(row["arguments"])] if shows_arguments else []
        click.echo(" ".join(words))
    return click.echo(f"{len(rows)} effect{'' if len(rows) == 1 else 's'}")


@effects.command()
@SESSIONS
def run(ids: tuple[str, ...]) -> None:
    """Run the scheduled effects of the named sessions, or of all, for a scheduled job.

    Exit with status 1 if any remain.
    """
    remaining: list[str] = _run(_run_all, ids, loads_tools=True)
    for id in remaining:
        click.echo(f"session {id} still has scheduled effects")
    if remaining:
        raise click.ClickException("Run this again later.")


@effects.command()
@click.argument("key")
@click.argument("decision", type=click.Choice(["done", "retry", "drop"]))
@click.option("--session", "id", help="The session of the effect; saves the search.")
@click.option("--result", default="", help="The result for the model, with `done`.")
def settle(key: str, decision: str, id: str | None, result: str) -> None:
    """Settle the effect KEY: it is done, may run again, or must not run.

    The model's next identical call of `once` gets the result of `done`, or the refusal of `drop`.
    `retry` lets it run, or runs a scheduled effect again.
    """

    async def use(outbox: Any, ids: Iterable[str]) -> Any:
        return await settle_call(outbox, ids, key, decision, result)

    tool = _run(use, [id] if id else [])
    click.echo(f"Effect {key} of {tool} is settled: {decision}.")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def _list(outbox: Any, ids: Iterable[str]) -> list[dict[str, Any]]:
    from .records import SKEW_SECONDS, read_section

    rows = list[dict[str, Any]]()
    now = time.time()
    async for id, snapshot in _snapshots(outbox.sessions, ids):
        for call in read_section(snapshot["app_data"].get("records", {})).calls:
            if call.status == "done":
                continue
            is_late = call.status == "started" and now > call.until + SKEW_SECONDS
            status = "unknown" if is_late else call.status
            rows.append(
                {
                    "session_id": id,
                    "key": call.key,
                    "status": status,
                    "tool": call.tool,
                    "turn": call.turn,
                    "age": int(now - call.at),
                    "arguments": call.arguments,
                }
            )
    return rows


async def _run_all(outbox: Any, ids: Iterable[str]) -> list[str]:
    remaining = list[str]()
    async for id, _ in _snapshots(outbox.sessions, ids):
        pause = 0
        try:
            while pause == 0:
                pause = await outbox.step(id)
        except AgentError as error:  # the next session does not depend on it
            click.echo(f"session {id}: {error.detail or error}", err=True)
        if pause is not None:
            remaining.append(id)
    return remaining


async def settle_call(outbox: Any, ids: Iterable[str], key: str, decision: str, result: str) -> str:
    """Settle a call as `effects settle` does, and return the name of its tool."""
    from .outbox import Outcome
    from .records import read_section

    async for id, snapshot in _snapshots(outbox.sessions, ids):
        calls = read_section(snapshot["app_data"].get("records", {})).calls
        call = next((call for call in calls if call.key == key), None)
        if call is None:
            continue
        if call.status == "done":
            raise click.ClickException(f"Effect {key} is done.")
        is_wanted = call.kind == "once"
        outcomes = {
            "done": Outcome("done", result, is_wanted),
            "drop": Outcome("failed", "A person decided that this must not run.", is_wanted),
            "retry": Outcome("removed" if call.kind == "once" else "scheduled"),
        }
        outbox.outcomes[id][key] = outcomes[decision]
        await outbox.save(id)
        return call.tool
    raise click.ClickException(f"No session has an effect {key}.")


async def _snapshots(sessions: Sessions, ids: Iterable[str]) -> AsyncIterator[tuple[str, Any]]:
    """Yield the named sessions that exist, or all."""
    for id in ids:
        stored = await sessions.store.load(id)
        if stored and stored.snapshot:
            yield id, json.loads(stored.snapshot)
    if not ids:
        try:
            async for id, snapshot in sessions.store.snapshots():
                yield id, json.loads(snapshot)
        except AgentError as error:
            raise click.ClickException(NO_LIST.format(error.detail or error)) from None


def _run(use: Use, ids: Iterable[str], *, loads_tools: bool = False) -> Any:
    """Return the result of `use`; print a failure as one line."""
    from .capability import Effects

    app: App = click.get_current_context().obj
    for id in ids:
        _check_id(id)
    capabilities = app.load_capabilities()
    if loads_tools:
        app.load()
    own = Effects.find(capabilities)
    try:
        return asyncio.run(use_store(use, own, capabilities, ids))
    except AgentError as error:
        raise click.ClickException(error.detail or str(error)) from None


def _check_id(id: str) -> None:
    if not re.fullmatch(SESSION_ID, id):
        raise click.BadParameter(ERRORS["invalid_session_id"][1])


async def use_store(use: Use, own: Any, capabilities: list[Capability], ids: Iterable[str]) -> Any:
    """Return the result of `use` with the first session store of the capabilities."""
    settings: CoreSettings = own.settings
    for capability in capabilities:
        store = capability.session_store()
        if store is not None and not isinstance(store, InProcess):
            own.outbox.sessions = Sessions(settings, store, [own])
            try:
                return await use(own.outbox, ids)
            finally:
                await own.close()
                await capability.close()
    raise click.ClickException(NO_STORE)
