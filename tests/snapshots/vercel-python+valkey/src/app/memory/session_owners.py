"""The sessions of one actor, in the store and in copies of it: found, and ended."""

import json
from collections.abc import Iterable

from ..parts import Parts
from .backends import Backend, Stored, Unavailable, Unsupported
from .erasing import Report
from .project import Project
from .secrets import Secrets
from .stores import build_backend, keepers

UNKNOWN = object()  # what is stored cannot be read


async def erase_sessions(
    parts: Parts, project: Project, heard: Iterable[str], report: Report
) -> None:
    """End the sessions of an actor; those that memories `heard` are tried when none are listed."""
    store, collection, unclear = parts.store, parts.collection, list[str]()
    if store is None or collection is None:
        report.notes.append(f"no session store was searched. {parts.contacts()[1]}")
        return
    where, ended = collection.collection_id, list[str]()
    try:
        try:
            ids = await store.sessions()
        except Unsupported:
            ids = [*heard]
            known = f"only {len(ids)} that long-term memory knows were looked at"
            report.notes.append(f"collection {where} cannot list its sessions: {known}")
        for id in ids:
            owner = await _owner(store, id)
            if owner is UNKNOWN:
                unclear.append(id)
            elif owner == report.actor and not collection.writeback.enabled:
                report.could_not.append(f"session {id}: collection {where} is read-only here")
            elif owner == report.actor:
                await store.end(id)
                ended.append(id)
    except Unavailable as error:
        report.could_not.append(f"sessions in collection {where}: {error}")
    report.sessions = len(ended)
    report.notes += [f"session {id} cannot be read, so it may be of anybody" for id in unclear]
    if parts.mirrors:
        await _erase_copies(parts, project, ended, report)


async def _owner(store: Backend, session: str) -> object:
    """The actor of a session, or None; of one whose last turn is lost, that of a checkpoint."""
    stored = await store.load(session)
    owner = _actor_in(stored)
    if owner is not UNKNOWN:
        return owner
    checkpoints = await store.checkpoints(session)
    for id in reversed(checkpoints):
        owner = _actor_in(await store.load(session, checkpoint=id))
        if owner is not UNKNOWN:
            return owner
    return UNKNOWN if stored or checkpoints or await store.asides(session) else None


def _actor_in(stored: Stored | None) -> object:
    """The actor in a snapshot, also in one that no turn could go on with."""
    try:
        return json.loads((stored and stored.snapshot) or b"")["app_data"]["actor"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return UNKNOWN


async def _erase_copies(parts: Parts, project: Project, ended: list[str], report: Report) -> None:
    secrets, known = Secrets(parts.options), {mirror.contact for mirror in parts.mirrors}
    for collection in keepers(project)[1:]:
        where = f"copies in collection {collection.collection_id}"
        try:
            copies = build_backend(collection, project.agent_id, parts.options, secrets)
            if copies.contact not in known:
                continue
            report.notes.append(f"{where} are not listed: those of sessions that ended before stay")
            for id in ended:
                await copies.end(id)
            await copies.close()
        except Unavailable as error:
            report.could_not.append(f"{where}: {error}")
