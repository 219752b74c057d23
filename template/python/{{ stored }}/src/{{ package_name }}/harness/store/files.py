"""Sessions in a folder, as a backup or on the way to a store of another type."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from ..collections.erasure import Stock
from ..sessions.session_store import Stored
from .base import NO_FILES, Conflict, Files, StoreUnavailable, StoreWarning

Row = dict[str, Any]  # `session_id`, `latest` snapshot, `checkpoints` by id, `files` by name


class SessionFiles:
    """A DurableStore with a file for each session. Only one process may write at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.contact = f"the folder {folder}"

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        row = self._read(self._path(session_id))
        latest = json.dumps(row["latest"], ensure_ascii=False).encode() if row else None
        return Stored(sha256(latest).hexdigest(), latest) if latest else None

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
        files: Files = NO_FILES,
    ) -> str | None:
        stored = await self.load(session_id)
        if (stored.revision if stored else None) != expected:
            raise Conflict
        row = self._read(self._path(session_id)) or {"session_id": session_id, "checkpoints": {}}
        row["latest"] = json.loads(snapshot)
        encoded = {name: b64encode(content).decode() for name, content in files.items()}
        row["files"] = row.get("files", {}) | encoded
        if checkpoint:
            row["checkpoints"][checkpoint] = row["latest"]
        self._write(row)
        stored = await self.load(session_id)
        return stored.revision if stored else None

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        if row := self._read(self._path(session_id)):
            row["checkpoints"][checkpoint] = json.loads(snapshot)
            self._write(row)

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        row = self._read(self._path(session_id))
        snapshot = row["checkpoints"].get(checkpoint) if row else None
        return json.dumps(snapshot, ensure_ascii=False).encode() if snapshot else None

    async def checkpoints(self, session_id: str) -> list[str]:
        row = self._read(self._path(session_id))
        return sorted(row["checkpoints"]) if row else []

    async def load_files(self, session_id: str, names: Sequence[str]) -> Files:
        row = self._read(self._path(session_id)) or {}
        files = row.get("files", {})
        try:
            return {name: b64decode(files[name]) for name in names if name in files}
        except (ValueError, TypeError) as error:
            message = f"a file of session {session_id} is damaged ({type(error).__name__})"
            raise StoreUnavailable(message) from None

    async def trim_files(self, session_id: str, dropped: Sequence[str] = ()) -> None:
        if row := self._read(self._path(session_id)):
            text = json.dumps([row["latest"], row["checkpoints"]])
            row["files"] = {name: it for name, it in row.get("files", {}).items() if name in text}
            self._write(row)

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        raise StoreUnavailable("a folder cannot quarantine snapshots")

    async def quarantined(self, session_id: str) -> list[str]:
        return []

    async def sessions(self) -> list[str]:
        try:
            paths = [*self._folder.iterdir()]
        except FileNotFoundError:
            paths = []
        except OSError as error:
            raise StoreUnavailable(f"{self.contact} cannot be read ({error.strerror})") from None
        rows = [self._read(path) for path in paths if path.suffix == ".json"]
        return sorted(row["session_id"] for row in rows if row)

    async def end(self, session_id: str) -> None:
        path = self._path(session_id)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be deleted ({error.strerror})") from None

    def leftovers(self) -> list[Stock]:
        return []

    async def warnings(self) -> list[StoreWarning]:
        return []

    async def close(self) -> None:
        """Do nothing: the store keeps no file open."""

    def _path(self, session_id: str) -> Path:
        """Return the path of a session, unique even in a case-insensitive file system."""
        return self._folder / f"{sha256(session_id.encode()).hexdigest()}.json"

    def _read(self, path: Path) -> Row | None:
        try:
            row: Row = json.loads(path.read_text("utf-8"))
            assert row["session_id"] and isinstance(row["checkpoints"], dict)
            return row if row["latest"] else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AssertionError) as error:
            message = f"{path} is not a stored session ({type(error).__name__})"
            raise StoreUnavailable(message) from None

    def _write(self, row: Row) -> None:
        path = self._path(row["session_id"])
        temporary = path.with_suffix(f".{uuid4()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.touch(mode=0o600)
            temporary.write_text(json.dumps(row, ensure_ascii=False), "utf-8", "replace")
            temporary.replace(path)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written ({error.strerror})") from None
        finally:
            with suppress(OSError):  # it contains conversation text
                temporary.unlink(missing_ok=True)
