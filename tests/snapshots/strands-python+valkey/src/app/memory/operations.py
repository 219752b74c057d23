"""The six operations of a custom backend, in the exact JSON of their contract."""

import re
from dataclasses import replace
from typing import Any

from .backends import Conflict, Unavailable
from .transport import UNREADABLE, Answer, Transport
from .wire import now

LATEST = "latest"
PAGE, PAGES = 1000, 100
UUID7 = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class Operations:
    """What an endpoint is asked, and whether it answers what the contract says.

    Each raises Unavailable, which names the operation when the answer is another one.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def save_snapshot(
        self,
        session_id: str,
        scope_id: str,
        snapshot_id: str,
        snapshot: dict[str, Any],
        match: str | None = None,
        none_match: str | None = None,
    ) -> str | None:
        """Save the latest snapshot or, by a UUIDv7, one for ever; its ETag. Raises Conflict."""
        is_latest = snapshot_id == LATEST
        asked = _request("save_snapshot", session_id, scope_id) | {
            "snapshot_id": snapshot_id,
            "is_latest": is_latest,
            "snapshot": snapshot,
        }
        answer = await self._transport.call(asked, match, none_match)
        if answer.status == 412:
            raise Conflict
        if is_latest or answer.status != 409:  # one for ever was there: an earlier attempt's
            self._expect_ok(asked, answer)
        return answer.etag

    async def load_snapshot(
        self, session_id: str, scope_id: str, snapshot_id: str, none_match: str | None = None
    ) -> Answer:
        """The snapshot, or UNREADABLE, or None; of status 304 when it still has that ETag."""
        asked = _request("load_snapshot", session_id, scope_id) | {"snapshot_id": snapshot_id}
        answer = await self._transport.call(asked, none_match=none_match)
        if answer.status == 304 and none_match:
            return answer
        return self._expect_object(asked, answer)

    async def list_snapshot_ids(
        self, session_id: str, scope_id: str, limit: int, start_after: str | None = None
    ) -> list[str]:
        """The ids of what was saved for ever, ascending, after `start_after`."""
        asked = _request("list_snapshot_ids", session_id, scope_id)
        asked |= {"limit": limit, "start_after": start_after}
        answer = await self._transport.call(asked)
        if answer.status == 404:
            return []
        ids = answer.value.get("snapshot_ids") if isinstance(answer.value, dict) else None
        is_good = isinstance(ids, list) and all(re.fullmatch(UUID7, str(one)) for one in ids)
        if ids is not None and is_good and ids == sorted(ids):
            return list(ids)
        raise self._other(asked, answer, '{"snapshot_ids": [UUIDv7s, ascending]}')

    async def all_snapshot_ids(self, session_id: str, scope_id: str) -> list[str]:
        """The ids of all that was saved for ever, ascending."""
        ids: list[str] = []
        for _ in range(PAGES):
            last = ids[-1] if ids else None
            page = await self.list_snapshot_ids(session_id, scope_id, PAGE, last)
            if not page or (last and page[0] <= last):  # the latter ignores start_after
                break
            ids += page
        return ids

    async def delete_session(self, session_id: str) -> None:
        """Delete all of a session, known or not."""
        asked = {"operation": "delete_session", "session_id": session_id}
        answer = await self._transport.call(asked)
        if answer.status != 404:
            self._expect_ok(asked, answer)

    async def save_manifest(self, session_id: str, scope_id: str) -> dict[str, Any]:
        """Say in which schema the snapshots are; the manifest."""
        manifest = {"schema_version": "1.0", "updated_at": now()}
        asked = _request("save_manifest", session_id, scope_id) | {"manifest": manifest}
        self._expect_ok(asked, await self._transport.call(asked))
        return manifest

    async def load_manifest(self, session_id: str, scope_id: str) -> Any:
        """The manifest, or None."""
        asked = _request("load_manifest", session_id, scope_id)
        answer = self._expect_object(asked, await self._transport.call(asked))
        return {} if answer.value is UNREADABLE else answer.value

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _expect_ok(self, asked: dict[str, Any], answer: Answer) -> None:
        value = answer.value
        if answer.status // 100 != 2 or not isinstance(value, dict) or value.get("ok") is not True:
            raise self._other(asked, answer, '{"ok": true}')

    def _expect_object(self, asked: dict[str, Any], answer: Answer) -> Answer:
        if answer.status == 404:
            return replace(answer, value=None)
        is_known = answer.value is None or answer.value is UNREADABLE
        if answer.status // 100 != 2 or not (is_known or isinstance(answer.value, dict)):
            raise self._other(asked, answer, "an object or null")
        return answer

    def _other(self, asked: dict[str, Any], answer: Answer, wanted: str) -> Unavailable:
        what = f"{asked['operation']} of {self._transport.contact}: HTTP {answer.status}"
        what += f", instead of {wanted}"
        return Unavailable(what, is_certain=answer.status // 100 == 4)


def _request(operation: str, session_id: str, scope_id: str) -> dict[str, Any]:
    scope = {"type": "agent", "scope_id": scope_id}
    return {"operation": operation, "session_id": session_id, "scope": scope}
