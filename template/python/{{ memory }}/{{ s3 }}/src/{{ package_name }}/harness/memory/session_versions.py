"""Erase the old versions of an actor's sessions from a versioned bucket."""

import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ..capability import Capability
from ..modules import LoadModules
from ..settings import CoreSettings
from ..store.base import DurableStore, StoreUnavailable
from ..store.s3 import LATEST, Bucket, S3Store, Versions
from .erase import Report
from .session_erasure import SessionErasure

KEPT = "old versions of sessions may remain in the bucket"


class SessionVersions(Capability):
    """Lets `forget` also delete old versions of an actor's ended or expired sessions."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        SessionErasure.find(before).purge = self.purge

    async def purge(self, store: DurableStore, report: Report) -> None:
        """Delete the versions of the actor's ended or expired sessions."""
        assert isinstance(store, S3Store)
        count = 0
        try:
            async for versions in _sessions(store):
                latest = [it for it in versions if it["Key"].endswith(f"/{LATEST}")]
                newest = next((it for it in latest if it["is_object"]), None)
                is_live = any(it["is_live"] for it in latest)
                if newest and not is_live and await _actor(store, newest) == report.actor:
                    for version in versions:
                        key = version["Key"]
                        id = version["VersionId"]
                        await store.run(partial(Bucket.delete_version, key=key, id=id))
                    count += 1
        except StoreUnavailable as error:
            report.notes.append(f"{KEPT}: {error}")
        if count:
            report.notes.append(f"old versions of {count} ended or expired sessions were deleted")


async def _sessions(store: S3Store) -> AsyncIterator[Versions]:
    """Yield the versions of all objects of each session, newest first."""

    def session_of(version: dict[str, Any]) -> str:
        return store.session_in(version["Key"]) or ""

    pending: Versions = []
    markers: dict[str, str] = {}
    while True:  # each page has its own time limit
        page = await store.run(partial(Bucket.versions, prefix=store.root, markers=markers))
        pending += sorted(page[0], key=lambda it: it["Key"])  # stable: newest first within a key
        groups = [(id, [*group]) for id, group in groupby(pending, session_of)]
        if page[1]:  # the last session may continue on the next page
            pending = groups.pop()[1] if groups else []
        for id, group in groups:
            if id:
                yield group
        if not page[1]:
            return
        markers = page[1]


async def _actor(store: S3Store, version: dict[str, Any]) -> object:
    """Return the actor of a version's session, or None if the session has no actor."""

    def read(bucket: Bucket) -> bytes:
        selection = {"Key": version["Key"], "VersionId": version["VersionId"]}
        body: bytes = bucket.s3.get_object(Bucket=bucket.name, **selection)["Body"].read()
        return body

    try:
        return json.loads(await store.run(read))["app_data"]["actor"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
