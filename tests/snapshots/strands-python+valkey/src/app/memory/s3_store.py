"""Sessions in Amazon S3: an object for each, replaced under the condition that nobody else did."""

import json
import logging
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, cast

from uuid_utils import uuid7

from ..contract import SESSION_ID
from . import models
from .backends import Stored, Unavailable
from .options import Options
from .s3_client import S3Client
from .s3_lifecycle import ensure_rule
from .s3_objects import Objects, all_keys
from .secrets import Secrets
from .wire import now as written_now

log = logging.getLogger(__name__)
Result = TypeVar("Result")
LATEST, HISTORY, ASIDE = "snapshot_latest.json", "immutable_history/", "set_aside/"


class S3Store:
    """The objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`; a revision is an ETag.

    What is older than `ttl_days` counts as absent, whether or not S3 has deleted it yet.
    """

    now: Callable[[], datetime] | None = None  # None: the clock of S3

    def __init__(
        self, collection: models.Collection, agent_id: str, options: Options, secrets: Secrets
    ) -> None:
        declared = cast(models.S3, collection.backend)
        self._id, self._days, self._options = collection.collection_id, declared.ttl_days, options
        self._root = f"{declared.prefix}/" if declared.prefix else ""
        self._middle = f"/agent/{agent_id}/snapshots/"
        reference, seconds = declared.bucket_secret or "", options.store_timeout_seconds
        self._client = S3Client(reference, declared.region, seconds, secrets)
        # Without a prefix a rule would delete what others have in the bucket.
        self._is_ruled = not self._root
        self.contact = f"the bucket of secret {reference!r} in {declared.region}"

    async def load(
        self, session_id: str, known: str | None = None, checkpoint: str | None = None
    ) -> Stored | None:
        """What is stored last, or in a checkpoint; None when there is nothing."""
        name = f"{HISTORY}snapshot_{checkpoint}.json" if checkpoint else LATEST
        key, most = self._folder(session_id) + name, self._options.max_snapshot_bytes
        return await self._run(lambda objects: objects.get(key, known, most))

    async def save(
        self, session_id: str, snapshot: bytes, expected: str | None, checkpoint: str | None = None
    ) -> str:
        """Replace what has the expected revision (None: nothing yet), and return the new one."""
        folder = self._folder(session_id)

        def save(objects: Objects) -> str:
            if expected:
                return objects.put(folder + LATEST, snapshot, IfMatch=expected)
            objects.put(f"{folder}manifest.json", _manifest())
            return objects.create(folder + LATEST, snapshot)

        revision = await self._run(save)
        if checkpoint:
            await self.keep(session_id, snapshot, checkpoint)
        self._tidy(folder, is_longer=checkpoint is not None)
        return revision

    async def keep(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        """Keep what is committed under an id of its own too; failing is a warning."""
        copy = f"{self._folder(session_id)}{HISTORY}snapshot_{checkpoint}.json"
        try:
            await self._run(lambda objects: objects.put(copy, snapshot))
        except Unavailable as error:
            log.warning("session %s: no checkpoint: %s", session_id, error)

    async def set_aside(self, session_id: str, revision: str | None) -> str:
        """Put what is stored last beside it, where nothing overwrites it; its name there."""
        folder = self._folder(session_id)
        name = f"{folder}{ASIDE}snapshot_{uuid7()}.json"
        await self._run(lambda objects: objects.move(folder + LATEST, name, revision or ""))
        return name

    async def checkpoints(self, session_id: str) -> list[str]:
        """The ids of the checkpoints, oldest first."""
        folder = f"{self._folder(session_id)}{HISTORY}"
        keys = await self._run(lambda objects: objects.keys(folder))
        ids = [key.removeprefix(f"{folder}snapshot_").removesuffix(".json") for key in keys]
        return ids[-self._options.checkpoints :]  # those before are about to be deleted

    async def asides(self, session_id: str) -> list[str]:
        """The names of what was set aside."""
        folder = f"{self._folder(session_id)}{ASIDE}"
        return await self._run(lambda objects: objects.keys(folder))

    async def end(self, session_id: str) -> None:
        """Delete all of the session, known or not."""
        folder = self._folder(session_id)

        def end(objects: Objects) -> None:
            objects.delete([folder + LATEST])  # first: then no turn that runs can be committed
            objects.delete_all(folder, folder + LATEST)  # which another replica may have made

        await self._run(end)

    async def sessions(self) -> list[str]:
        """The ids of all sessions."""
        keys = await all_keys(self._run, self._root)
        own = re.compile(f"{re.escape(self._root)}({SESSION_ID}){re.escape(self._middle)}")
        return sorted({found[1] for key in keys if (found := own.match(key))})

    async def close(self) -> None:
        """Close what is open."""
        self._client.close()

    def _folder(self, session_id: str) -> str:
        return f"{self._root}{session_id}{self._middle}"

    async def _run(self, use: Callable[[Objects], Result]) -> Result:
        days, now = self._days, self.now
        return await self._client.run(lambda s3, bucket: use(Objects(s3, bucket, days, now)))

    def _tidy(self, folder: str, is_longer: bool) -> None:
        """Begin what no turn waits for: the lifecycle rule, and deleting old checkpoints."""
        kept = self._options.checkpoints

        def trim(s3: Any, bucket: str) -> None:
            objects = Objects(s3, bucket, None, None)
            objects.delete(objects.keys(folder + HISTORY)[:-kept])

        def rule(s3: Any, bucket: str) -> None:
            ensure_rule(s3, bucket, self._id, self._root, self._days)

        if not self._is_ruled:
            self._is_ruled = True
            self._client.later("the lifecycle rule", rule)
        if is_longer and kept:
            self._client.later("deleting old checkpoints", trim)


def _manifest() -> bytes:
    return json.dumps({"schema_version": "1.0", "updated_at": written_now()}).encode()
