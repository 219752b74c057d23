"""A conversation with a custom endpoint that finds where it departs from its contract."""

import asyncio
from contextlib import suppress
from typing import Any
from uuid import uuid4

from uuid_utils import uuid7

from .backends import Conflict, Unavailable
from .operations import LATEST, Operations

WRITERS = 8
TEXT = 'Grüße, 你好 😀 \\ " \n' * 1000


class EndpointCheck:
    """A conversation with one endpoint, in a session of its own that it deletes."""

    def __init__(self, agent_id: str) -> None:
        self.found: dict[str, tuple[object, ...]] = {}
        self._agent, self._session = agent_id, f"check-{uuid4()}"

    def say(self, id: str, *names: object) -> None:
        """Note a finding, each id once; names are for the places in its message."""
        self.found.setdefault(id, names)

    async def run(self, endpoint: Operations) -> None:
        """Check one thing after another. Raises Unavailable when the first is not answered."""
        self._endpoint = endpoint
        try:
            await self._empty()
            for step in (self._latest, self._checkpoints, self._manifest, self._end):
                try:
                    await step()
                except Unavailable as error:
                    self.say("AML-C01", error)
                except Conflict:
                    self.say("AML-C19")
        finally:
            await endpoint.close()

    async def run_as_stranger(self, endpoint: Operations) -> None:
        """Check that one who sends no credentials is refused."""
        with suppress(Unavailable):
            await endpoint.load_snapshot(self._session, self._agent, LATEST)
            self.say("AML-C18")
        await endpoint.close()

    async def _empty(self) -> None:
        await self._expect("AML-C02", LATEST, None)
        if await self._endpoint.load_manifest(self._session, self._agent) is not None:
            self.say("AML-C03")
        if await self._endpoint.list_snapshot_ids(self._session, self._agent, 10):
            self.say("AML-C04")

    async def _latest(self) -> None:
        await self._save(LATEST, 1)
        old = await self._expect("AML-C05", LATEST, 1)
        saved = await self._save(LATEST, 2)
        etag = await self._expect("AML-C06", LATEST, 2)
        found = await self._endpoint.load_snapshot(self._session, f"{self._agent}.other", LATEST)
        if found.value is not None:
            self.say("AML-C07")
        if old is None or etag is None:
            self.say("AML-C20")
        elif old == etag or saved not in (None, etag):
            self.say("AML-C08")
        else:
            await self._conditions(old, etag)

    async def _conditions(self, old: str, etag: str) -> None:
        found = await self._endpoint.load_snapshot(self._session, self._agent, LATEST, old)
        if found.status == 304:
            self.say("AML-C12")
        writers = [self._is_saved(turn, etag) for turn in range(3, 3 + WRITERS)]
        accepted = sum(await asyncio.gather(*writers))
        if accepted != 1:
            self.say("AML-C09", accepted, WRITERS)
        if await self._is_saved(20, old):
            self.say("AML-C10")
        if await self._is_saved(21, None, "*"):
            self.say("AML-C11")

    async def _checkpoints(self) -> None:
        ids = sorted(str(uuid7()) for _ in range(3))
        await self._save(LATEST, 30)
        for turn, id in enumerate([*ids, ids[2]]):  # the last one again, as a retry would
            await self._save(id, min(turn, 2))
        await self._expect("AML-C13", ids[1], 1)
        await self._expect("AML-C14", LATEST, 30)
        for limit, after, page in ((10, None, ids), (2, None, ids[:2]), (10, ids[0], ids[1:])):
            told = await self._endpoint.list_snapshot_ids(self._session, self._agent, limit, after)
            if told != page:
                self.say("AML-C15")

    async def _manifest(self) -> None:
        saved = await self._endpoint.save_manifest(self._session, self._agent)
        if await self._endpoint.load_manifest(self._session, self._agent) != saved:
            self.say("AML-C16")

    async def _end(self) -> None:
        for _ in range(2):  # the second time it is unknown
            await self._endpoint.delete_session(self._session)
        await self._expect("AML-C17", LATEST, None)
        if await self._endpoint.load_manifest(self._session, self._agent) is not None:
            self.say("AML-C17")
        if await self._endpoint.list_snapshot_ids(self._session, self._agent, 10):
            self.say("AML-C17")

    async def _save(
        self, id: str, turn: int, match: str | None = None, none: str | None = None
    ) -> str | None:
        return await self._endpoint.save_snapshot(
            self._session, self._agent, id, _snapshot(turn), match, none
        )

    async def _is_saved(self, turn: int, match: str | None, none: str | None = None) -> bool:
        try:
            await self._save(LATEST, turn, match, none)
        except Conflict:
            return False
        return True

    async def _expect(self, finding: str, id: str, turn: int | None) -> str | None:
        found = await self._endpoint.load_snapshot(self._session, self._agent, id)
        if found.value != (None if turn is None else _snapshot(turn)):
            self.say(finding)
        return found.etag


def _snapshot(turn: int) -> dict[str, Any]:
    message = {"role": "user", "content": [{"text": f"{turn} {TEXT}"}]}
    data: dict[str, Any] = {
        "messages": [message],
        "state": {"empty": {}, "list": [], "none": None},
        "system_prompt": None,
    }
    last = {"actor": None, "turn": turn, "key": None, "reply": TEXT}
    envelope = {"scope": "agent", "schema_version": "1.0", "created_at": "2026-05-01T10:00:00Z"}
    return envelope | {"data": data, "app_data": last}
