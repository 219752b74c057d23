"""The erasure of versions that a bucket keeps of one actor's sessions."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ..capability import Capability
from ..contract import SESSION_ID
from ..modules import LoadModules
from ..settings import CoreSettings
from ..store.base import DurableStore, StoreUnavailable
from ..store.s3 import LATEST, Bucket, S3Store
from .erase import Report
from .session_erasure import SessionErasure

LEFT = "old versions that the bucket may keep were not deleted"
Versions = list[dict[str, Any]]  # as S3 lists them


class SessionVersions(Capability):
    """Lets `forget` also delete old versions of an actor's sessions, which ended or expired."""

    def __init__(
        self, settings: CoreSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        SessionErasure.find(before).purge = self.purge

    async def purge(self, store: DurableStore, report: Report) -> None:
        """Delete what is kept of the actor's sessions that ended or expired."""
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
            report.notes.append(f"{LEFT}: {error}")
        if count:
            what = f"{count} sessions that ended or expired"
            report.notes.append(f"what was kept of {what} was deleted")


async def _sessions(store: S3Store) -> AsyncIterator[Versions]:
    """Yield the versions of all objects of each session, newest first."""
    own = re.compile(f"{re.escape(store.root)}({SESSION_ID}){re.escape(store.middle)}")

    def session_of(version: dict[str, Any]) -> str:
        found = own.match(version["Key"])
        return found[1] if found else ""

    known: Versions = []
    markers: dict[str, str] = {}
    while True:  # each page is a call with its own time limit
        page = await store.run(partial(_list, prefix=store.root, markers=markers))
        known += sorted(page[0], key=lambda it: it["Key"])  # stable: a key has its newest first
        groups = [(id, [*group]) for id, group in groupby(known, session_of)]
        if page[1]:  # the last session may go on in the next page
            known = groups.pop()[1] if groups else []
        for id, group in groups:
            if id:
                yield group
        if not page[1]:
            return
        markers = page[1]


def _list(bucket: Bucket, prefix: str, markers: dict[str, str]) -> tuple[Versions, dict[str, str]]:
    page = bucket.s3.list_object_versions(Bucket=bucket.name, Prefix=prefix, **markers)
    found = [{**it, "is_object": True} for it in page.get("Versions", [])]
    for it in found:
        it["is_live"] = it["IsLatest"] and not bucket.is_expired(page, it["LastModified"])
    markers_found = page.get("DeleteMarkers", [])
    found += [{**it, "is_object": False, "is_live": False} for it in markers_found]
    found.sort(key=lambda it: it["LastModified"], reverse=True)
    if not page["IsTruncated"]:
        return found, {}
    names = {"NextKeyMarker": "KeyMarker", "NextVersionIdMarker": "VersionIdMarker"}
    return found, {names[name]: page[name] for name in names if page.get(name)}


async def _actor(store: S3Store, version: dict[str, Any]) -> object:
    """Return whose session a version is, or None if it does not say."""

    def read(bucket: Bucket) -> bytes:
        which = {"Key": version["Key"], "VersionId": version["VersionId"]}
        body: bytes = bucket.s3.get_object(Bucket=bucket.name, **which)["Body"].read()
        return body

    try:
        return json.loads(await store.run(read))["app_data"]["actor"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _delete(version: dict[str, Any], bucket: Bucket) -> None:
    which = {"Key": version["Key"], "VersionId": version["VersionId"]}
    bucket.s3.delete_object(Bucket=bucket.name, **which)
