"""The command `forget`: erases what the stores and memories of the agent have of one person."""

import asyncio
import json
import re
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..contract import ACTOR_ID, ERRORS
from ..parts import Parts
from ..settings import read_settings
from .agentcore import AgentCore
from .backends import Unavailable
from .erasing import Report, erase_events, erase_records, has_any, patiently
from .local_memory import FOLDER, LocalMemory
from .memories import Memory
from .models import AgentCoreMemory, Collection
from .namespaces import Who
from .ownership import own_places
from .project import load_project
from .recall import Reader
from .session_commands import JSON
from .session_owners import erase_sessions

AGAIN = "records may still be made of what was said last: run this again in some minutes"


def _actor(_: Any, __: Any, value: str) -> str:
    if not re.fullmatch(ACTOR_ID, value):
        raise click.BadParameter(ERRORS["invalid_actor"][1])
    return value


@click.command()
@click.option("--actor", required=True, callback=_actor, metavar="ID", help="Who is forgotten.")
@JSON
def forget(actor: str, as_json: bool) -> None:
    """Erase an actor's sessions, events and records; exit with 1 if some are left."""
    settings, found = read_settings()
    found += Parts.check(settings)
    if errors := [one["message"] for one in found if one["severity"] == "error"]:
        raise click.ClickException("\n".join(errors))
    report = asyncio.run(_forget(Parts(settings), actor))
    text = json.dumps(asdict(report), ensure_ascii=False, separators=(",", ":"))
    click.echo(text if as_json else "\n".join(report.lines()))
    sys.exit(bool(report.could_not))


async def _forget(parts: Parts, actor: str) -> Report:
    try:
        return await erase(parts, actor)
    finally:
        await parts.close()


async def erase(parts: Parts, actor: str) -> Report:
    """Erase what there is of an actor, as far as it can be done and told apart."""
    report, project = Report(actor), load_project(Path(), parts.options.agent_id)
    memories = [(project.collections[id], it) for id, it in parts.long_term.memories.items()]
    for collection, memory in [*memories]:  # of earlier trials, without the service
        id = collection.collection_id
        if not isinstance(memory, AgentCore):
            report.notes.append(f"collection {id} was looked for in {memory.contact}")
        elif (FOLDER / f"{id}.jsonl").exists():
            memories.append((collection, LocalMemory(id, [])))
    heard: list[list[str] | None] = []
    for collection, memory in memories:
        try:
            heard.append(await patiently(partial(memory.sessions, actor)))
        except Unavailable as error:
            heard.append(None)
            report.could_not.append(f"events of collection {collection.collection_id}: {error}")
    known = sorted({id for some in heard for id in some or ()})
    await erase_sessions(parts, project, known, report)
    who = Who(actor, "", parts.options.project_id)
    for (collection, memory), sessions in zip(memories, heard, strict=True):
        await _erase_memory(collection, memory, sessions, who, report)
    report.notes[:] = dict.fromkeys(report.notes)
    return report


async def _erase_memory(
    collection: Collection, memory: Memory, sessions: list[str] | None, who: Who, report: Report
) -> None:
    where, before = f"of collection {collection.collection_id}", report.events
    backend, templates = collection.backend, list[str]()
    assert isinstance(backend, AgentCoreMemory)
    templates += backend.retrieval_config or {}
    try:
        if isinstance(memory, AgentCore):  # which writes to namespaces that are not read, too
            reader = Reader(collection.collection_id, "project", memory, None)
            templates += await patiently(reader.namespaces)
        elif not templates:
            is_own = collection.scope.lifetime == "user"
            templates.append("/users/{actorId}" if is_own else "/projects/{projectId}")
    except Unavailable as error:
        report.could_not.append(f"records {where} in all its namespaces: {error}")
    own = own_places(templates, who, sessions or [])
    report.could_not += [f"{what} ({where})" for what in own.missing]
    report.notes += [f"{what} ({where})" for what in own.shared]
    try:
        if collection.writeback.enabled:
            await erase_events(memory, sessions or [], report)
        elif await has_any(memory, sessions or [], own.places.values(), who.actor):
            report.could_not.append(f"events and records {where}: it is read-only here")
    except Unavailable as error:
        report.could_not.append(f"events {where}: {error}")
    try:
        for place in own.places.values() if collection.writeback.enabled else ():
            await erase_records(memory, place, report)
    except Unavailable as error:
        report.could_not.append(f"records {where}: {error}")
    if isinstance(memory, AgentCore) and report.events > before:
        report.notes.append(AGAIN)
