"""Limits the size of HTTP responses of the model provider."""

from codecs import getincrementaldecoder
from typing import Any

from ..contract import RUNNING, AgentError
from ..settings import CoreSettings


def event_hooks(settings: CoreSettings) -> dict[str, Any]:
    """Return event hooks for HTTPX that abort a call if its response is too large.

    A byte of a reply takes up to six bytes in JSON, and short chunks have a high overhead.
    """
    max_line = 6 * settings.max_reply_bytes + 65_536
    max_total = 64 * settings.max_reply_bytes + 65_536

    async def limit(response: Any) -> None:
        if turn := RUNNING.get(None):
            turn.note_answer(response.status_code, response.headers.get("retry-after", ""))
        read = response.aiter_bytes

        async def bounded(chunk_size: int | None = None) -> Any:
            # Replace invalid UTF-8 by U+FFFD, like browsers: the clients would fail.
            decoder = getincrementaldecoder("utf-8")("replace")
            line = total = 0
            async for chunk in read(chunk_size):
                total += len(chunk)
                line = len(chunk) - chunk.rfind(b"\n") - 1 + (0 if b"\n" in chunk else line)
                if line > max_line or total > max_total:
                    raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
                yield decoder.decode(chunk).encode()

        response.aiter_bytes = bounded

    return {"response": [limit]}
