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
from ..store.s3 import LATEST, Bucket, S3Store
from .erase import Report
from .session_erasure import SessionErasure

KEPT = "old versions of sessions may remain in the bucket"
Versions = list[dict[str, Any]]  # in the format of S3


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
                        await store.run(partial(_delete, version))
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
        page = await store.run(partial(_list, prefix=store.root, markers=markers))
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


def _list(bucket: Bucket, prefix: str, markers: dict[str, str]) -> tuple[Versions, dict[str, str]]:
    page = bucket.s3.list_object_versions(Bucket=bucket.name, Prefix=prefix, **markers)
    versions = [{**it, "is_object": True} for it in page.get("Versions", [])]
    for it in versions:
        it["is_live"] = it["IsLatest"] and not bucket.is_expired(page, it["LastModified"])
    delete_markers = page.get("DeleteMarkers", [])
    versions += [{**it, "is_object": False, "is_live": False} for it in delete_markers]
    versions.sort(key=lambda it: it["LastModified"], reverse=True)
    if not page["IsTruncated"]:
        return versions, {}
    names = {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}
    return versions, {names[name]: page[name] for name in names if page.get(name)}


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


def _delete(version: dict[str, Any], bucket: Bucket) -> None:
    selection = {"Key": version["Key"], "VersionId": version["VersionId"]}
    bucket.s3.delete_object(Bucket=bucket.name, **selection)
