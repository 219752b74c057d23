"""A long-term memory in a file, for trying out: what people say, found by the words of a query."""

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

from .backends import Unavailable
from .memories import Event, Record
from .namespaces import Place, event_session, resolve

log = logging.getLogger(__name__)
Row = dict[str, Any]
FOLDER = Path(".memory")
MOST = 10_000  # rows that are read, the last ones
EVENT = ("event", "token", "actor", "session", "at")
STOP = "a an and are be did do does for how i in is it my of on or the to was what who you your"


class LocalMemory:
    """The rows of one file: what was said, and each text of a person in each of its namespaces."""

    def __init__(self, collection_id: str, templates: Sequence[str], folder: Path = FOLDER) -> None:
        self._templates, self._folder, self._lock = templates, folder, RLock()
        self._path = folder / f"{collection_id}.jsonl"
        self._is_told = False  # that there are bad lines
        self.contact = str(self._path)

    async def retrieve(self, place: Place, query: str, top_k: int) -> list[Record]:
        """At most `top_k` records for a query, best first."""
        wanted = _words(query)
        rows = await asyncio.to_thread(self._rows, lambda row: _is_in(place, row))
        found = [
            Record(row["record"], row["text"], score, row["namespace"], row["at"])
            for row in rows
            if (score := len(wanted & _words(row["text"])) / max(1, len(wanted)))
        ]
        return sorted(found, key=lambda record: -record.score)[:top_k]

    async def create_event(self, event: Event) -> None:
        """Keep what was said; the same event is kept once. Raises Unavailable."""
        id, at = str(uuid4()), event.at.isoformat()
        session = event_session(event.who.session_id)
        said: Row = {"event": id, "token": event.token, "actor": event.who.actor}
        rows = [said | {"session": session, "at": at, "items": event.items}]
        # The replies of the offline model quote what was said, and would be remembered as well.
        for text in [text for role, text in event.items if role == "USER"]:
            for template in self._templates:
                place = resolve(template, event.who).path
                rows.append({"record": str(uuid4()), "namespace": place, "text": text, "at": at})
        await asyncio.to_thread(self._append, rows, event.token)

    async def sessions(self, actor: str) -> list[str]:
        """The sessions of an actor, by their names here."""
        rows = await asyncio.to_thread(self._rows, lambda row: row.get("actor") == actor, None)
        return list(dict.fromkeys(row["session"] for row in rows))

    async def events(self, actor: str, session: str) -> list[str]:
        """The ids of the events of such a session."""
        own = {"actor": actor, "session": session}
        rows = await asyncio.to_thread(self._rows, lambda row: own.items() <= row.items(), None)
        return [row["event"] for row in rows]

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        """Delete an event. Raises Unavailable."""
        await asyncio.to_thread(self._delete, "event", {event})

    async def records(self, place: Place, token: str | None) -> tuple[list[str], str | None]:
        """The ids of all records of a place; there are no more."""
        rows = await asyncio.to_thread(self._rows, lambda row: _is_in(place, row), None)
        return [row["record"] for row in rows], None

    async def delete_records(self, ids: list[str]) -> int:
        """Delete records, and return how many were deleted. Raises Unavailable."""
        return await asyncio.to_thread(self._delete, "record", set(ids))

    async def describe(self) -> dict[str, Any]:
        """Nothing: this is no resource."""
        return {}

    def _rows(self, is_wanted: Callable[[Row], bool], most: int | None = MOST) -> list[Row]:
        rows: deque[Row | None] = deque(maxlen=most)
        with self._alone():
            if self._path.exists():
                with self._path.open(encoding="utf-8", errors="replace") as lines:
                    rows.extend(map(_parse, lines))
        if None in rows and not self._is_told:
            self._is_told = True
            log.warning("%s has lines that cannot be read; they are left out", self._path)
        return [row for row in rows if row is not None and is_wanted(row)]

    def _append(self, rows: list[Row], token: str) -> None:
        with self._alone():
            if self._rows(lambda row: row.get("token") == token):
                return
            self._folder.mkdir(exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n")
            # In one write, so that another process does not come between.
            self._path.touch(0o600)
            with self._path.open("ab", buffering=0) as file:
                file.write(_text(rows))

    def _delete(self, kind: str, ids: set[str]) -> int:
        with self._alone():
            rows = self._rows(lambda row: True, None)
            kept = [row for row in rows if row.get(kind) not in ids]
            beside = self._path.with_suffix(".tmp")
            if len(kept) < len(rows):
                beside.touch(0o600)
                beside.write_bytes(_text(kept))
                beside.replace(self._path)
        return len(rows) - len(kept)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from None


def _text(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
        names = ("record", "namespace", "text", "at") if "record" in row else EVENT
        return row if all(isinstance(row[name], str) for name in names) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_in(place: Place, row: Row) -> bool:
    return "record" in row and place.holds(row["namespace"])


def _words(text: str) -> set[str]:
    """The words of a text that tell it from others, without the s of a plural."""
    words = set(re.findall(r"\w+", text.casefold())) - set(STOP.split())
    return {word[:-1] if len(word) > 3 and word[-1] == "s" != word[-2] else word for word in words}
