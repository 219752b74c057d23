"""A long-term memory in a local file, for trials: finds user messages by the query's words."""

import errno
import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

import anyio.to_thread

from .base import Entry, Event, MemoryCollection, MemoryUnavailable, Metadata, Namespaces, Record
from .namespaces import LOCAL, STRATEGY, Namespace, Who, default_template, event_session, resolve

log = logging.getLogger(__name__)
Row = dict[str, Any]
FOLDER = Path(".memory")
MAX_ROWS = 10_000  # a search reads only the last rows
EVENT = ("event", "token", "actor", "session", "at")
RECORD = ("record", "namespace", "text", "at")
STOP = "a an and are be did do does for how i in is it my of on or the to was what who you your"


class LocalMemory:
    """A Memory in a file: a row per event, and per user message and namespace."""

    after_erasure = ""

    def __init__(self, collection_id: str, templates: Sequence[str], note: str = "") -> None:
        """Open the memory of a collection; `contact` is the path followed by `note`."""
        self._templates = templates
        self._lock = RLock()
        self._path = FOLDER / f"{collection_id}.jsonl"
        self.contact = f"{self._path}{note}"

    @staticmethod
    def ids() -> list[str]:
        """Return the collections with a file."""
        return sorted(path.stem for path in FOLDER.glob("*.jsonl"))

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self._path.exists()

    async def retrieve(
        self, identity: Who, namespace: Namespace, query: str, limit: int, metadata: Metadata
    ) -> list[Record]:
        """Return at most `limit` records, best first, and only the newest of equal texts."""
        query_words = _words(query)
        newest = dict[str, Row]()
        for row in reversed(await self._rows(lambda row: _is_in(namespace, row), MAX_ROWS)):
            if metadata.items() <= row.get("metadata", {}).items():
                newest.setdefault(row["text"], row)
        records = [
            Record(row["record"], text, score, row["namespace"], row["at"])
            for text, row in newest.items()
            if (score := len(query_words & _words(text)) / max(1, len(query_words)))
        ]
        records.sort(key=lambda record: (record.text.endswith("?"), -record.score))
        # An earlier question matches the words of the query, but must not outrank a fact.
        scores = accumulate((record.score for record in records), min)
        ranked = zip(records, scores, strict=True)
        return [replace(record, score=score) for record, score in ranked][:limit]

    async def create_event(self, event: Event) -> None:
        """Store the texts of an event, once per token."""
        identity = event.identity
        at = event.at.isoformat()
        head: Row = {"event": str(uuid4()), "token": event.token, "actor": identity.actor}
        items = [utterance[:2] for utterance in event.utterances]
        head |= {"session": event_session(identity.session_id), "at": at, "items": items}
        # Only user messages: the echo model repeats them, so its replies would fill the memory.
        rows = [head] + [
            {"record": str(uuid4()), "namespace": path, "text": text, "at": at}
            for path in [resolve(template, identity).path for template in self._templates]
            for role, text, *_ in event.utterances
            if role == "USER"
        ]
        for row in rows[1:] if event.metadata else ():
            row["metadata"] = dict(event.metadata)
        await anyio.to_thread.run_sync(self._append, rows, event.token)

    async def namespaces(self, collection: MemoryCollection) -> Namespaces:
        return collection.namespaces or {}

    async def templates(self, collection: MemoryCollection) -> list[str]:
        declared = collection.namespaces or [default_template(collection.lifetime)]
        return [template.replace(STRATEGY, LOCAL) for template in declared]

    async def writes_to(self) -> str:
        return ""

    async def warm_up(self, collection: MemoryCollection) -> None:
        pass

    async def sessions(self, actor: str) -> list[str]:
        rows = await self._rows(lambda row: row.get("actor") == actor)
        return list(dict.fromkeys(row["session"] for row in rows))

    async def actors(self) -> list[str]:
        rows = await self._rows(lambda row: "event" in row)
        return list(dict.fromkeys(row["actor"] for row in rows))

    async def events(self, actor: str, session: str) -> AsyncIterator[list[str]]:
        fields = {"actor": actor, "session": session}
        yield [row["event"] for row in await self._rows(lambda row: fields.items() <= row.items())]

    async def delete_event(self, actor: str, session: str, event: str) -> None:
        await anyio.to_thread.run_sync(self._delete, "event", {event})

    async def records(self, namespace: Namespace) -> AsyncIterator[list[str]]:
        async for page in self.entries(namespace):
            yield [id for id, _ in page]

    async def entries(self, namespace: Namespace) -> AsyncIterator[list[Entry]]:
        rows = await self._rows(lambda row: _is_in(namespace, row))
        yield [(row["record"], [row["namespace"]]) for row in rows]

    async def delete_records(self, ids: list[str]) -> list[str]:
        return await anyio.to_thread.run_sync(self._delete, "record", set(ids))

    async def _rows(self, is_wanted: Callable[[Row], bool], last: int | None = None) -> list[Row]:
        rows = await anyio.to_thread.run_sync(self._read, last)
        return [row for row in rows if is_wanted(row)]

    def _read(self, last: int | None = None) -> list[Row]:
        with self._exclusive():
            if not self.exists:
                return []
            with self._path.open(encoding="utf-8", errors="replace") as lines:
                rows = deque(map(_parse, lines), maxlen=last)
        if None in rows:
            log.warning("%s has unreadable lines, which are ignored", self._path)
        return [row for row in rows if row is not None]

    def _append(self, rows: list[Row], token: str) -> None:
        with self._exclusive():
            if any(row.get("token") == token for row in self._read(MAX_ROWS)):
                return
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / ".gitignore").write_text("*\n", "utf-8")
            self._path.touch(0o600)
            before = self._path.read_bytes()
            is_torn = before[-1:] not in (b"", b"\n")
            text = (b"\n" if is_torn else b"") + _lines(rows)
            with self._path.open("ab", buffering=0) as file:
                # One write call, so that other processes cannot write in between.
                if file.write(text) < len(text):
                    # A partial event would keep its token, and block the retry of the whole event.
                    file.truncate(len(before))
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _delete(self, kind: str, ids: set[str]) -> list[str]:
        with self._exclusive():
            rows = self._read()
            deleted = [row[kind] for row in rows if row.get(kind) in ids]
            if deleted:
                temporary = self._path.with_suffix(".tmp")
                temporary.touch(0o600)
                try:
                    temporary.write_bytes(_lines(row for row in rows if row.get(kind) not in ids))
                    temporary.replace(self._path)
                finally:
                    temporary.unlink(missing_ok=True)
        return deleted

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except OSError as error:
            raise MemoryUnavailable(f"{self._path}: {error.strerror}") from None


def _lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
        names = RECORD if "record" in row else EVENT
        return row if all(isinstance(row[name], str) for name in names) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_in(namespace: Namespace, row: Row) -> bool:
    return "record" in row and namespace.holds(row["namespace"])


def _words(text: str) -> set[str]:
    """Return the significant words of text, without a plural s."""
    words = set(re.findall(r"\w+", text.casefold())) - set(STOP.split())
    return {word[:-1] if len(word) > 3 and word[-1] == "s" != word[-2] else word for word in words}
