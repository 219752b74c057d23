"""Sessions at an endpoint of the owner's own, by the contract of a custom backend."""

import logging
from typing import Any

from uuid_utils import uuid7

from .backends import Conflict, Stored, Unavailable, Unsupported
from .models import Collection
from .operations import LATEST, Operations
from .options import Options
from .secrets import Secrets
from .transport import UNREADABLE, open_transport
from .wire import from_wire, is_marker, marker, set_aside, to_wire

log = logging.getLogger(__name__)
NO_ETAG = "%s sends no ETag: of two instances in one session, the last to save wins"


class CustomStore:
    """The sessions of one agent at an endpoint, whose ETags are the revisions."""

    def __init__(
        self, collection: Collection, agent_id: str, options: Options, secrets: Secrets
    ) -> None:
        transport = open_transport(collection, options, secrets)
        self._endpoint, self._agent = Operations(transport), agent_id
        self.contact = transport.contact
        self._aside = f"{agent_id}.set-aside"  # a scope of no agent: an agent id has no dot
        self._has_etags, self._is_warned = True, False

    async def load(
        self, session_id: str, known: str | None = None, checkpoint: str | None = None
    ) -> Stored | None:
        """What is stored last, or in a checkpoint; None when there is nothing."""
        which = checkpoint or LATEST
        found = await self._endpoint.load_snapshot(session_id, self._agent, which, known)
        if found.status == 304:
            return Stored(known, None)
        if found.value is None:
            return None
        if checkpoint is None:
            self._note(found.etag)
        if found.value is UNREADABLE:
            return Stored(found.etag, found.raw)
        if is_marker(found.value):
            return None
        manifest = None
        if checkpoint is None and known is None:
            manifest = await self._endpoint.load_manifest(session_id, self._agent)
        return Stored(found.etag, from_wire(found.value, manifest))

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
    ) -> str | None:
        """Replace what has the expected revision (None: nothing yet), and return the new one."""
        wire = to_wire(snapshot)
        try:
            revision = await self._replace(session_id, wire, expected)
        except Conflict:
            found = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
            if expected or found.etag is None or not is_marker(found.value):
                raise
            revision = await self._replace(session_id, wire, found.etag)
        if wire["app_data"]["turn"] == 1:
            try:
                await self._endpoint.save_manifest(session_id, self._agent)
            except Unavailable as error:  # the turn is committed without it
                log.warning("session %s: %s", session_id, error)
        if checkpoint:
            await self.keep(session_id, snapshot, checkpoint)
        return revision

    async def keep(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Keep what is committed under an id of its own too; failing is a warning."""
        wire = to_wire(snapshot)
        try:
            await self._endpoint.save_snapshot(session_id, self._agent, checkpoint, wire)
        except (Conflict, Unavailable) as error:
            log.warning("session %s: no checkpoint: %s", session_id, error)

    async def set_aside(self, session_id: str, revision: str | None) -> str:
        """Keep what is stored last in a scope of its own, and put a marker in its place."""
        found = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
        if found.value is None or found.etag != revision:
            raise Conflict
        name = str(uuid7())
        await self._endpoint.save_snapshot(session_id, self._aside, name, set_aside(found.raw))
        await self._replace(session_id, marker(name), revision)
        return name

    async def checkpoints(self, session_id: str) -> list[str]:
        """The ids of the checkpoints, oldest first."""
        return await self._endpoint.all_snapshot_ids(session_id, self._agent)

    async def asides(self, session_id: str) -> list[str]:
        """The names of what was set aside."""
        return await self._endpoint.all_snapshot_ids(session_id, self._aside)

    async def end(self, session_id: str) -> None:
        """Delete all of the session, known or not."""
        await self._endpoint.delete_session(session_id)

    async def sessions(self) -> list[str]:
        """Raise Unsupported: none of the six operations is this one."""
        raise Unsupported("The contract of a custom backend has no operation that lists sessions.")

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    async def _replace(self, session_id: str, wire: Any, expected: str | None) -> str | None:
        # Without ETags there is nothing to compare: a condition could only fail for ever.
        none = "*" if expected is None and self._has_etags else None
        return await self._endpoint.save_snapshot(
            session_id, self._agent, LATEST, wire, expected, none
        )

    def _note(self, etag: str | None) -> None:
        self._has_etags = etag is not None
        if not self._has_etags and not self._is_warned:
            self._is_warned = True
            log.warning(NO_ETAG, self.contact)
