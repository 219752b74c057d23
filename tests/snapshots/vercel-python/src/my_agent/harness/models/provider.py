"""HTTP to the provider of the model, with a limit for the size of responses."""

from codecs import getincrementaldecoder
from typing import Any

from ..contract import RUNNING, AgentError
from ..settings import CoreSettings


def event_hooks(settings: CoreSettings) -> dict[str, Any]:
    """Return the event hooks of an HTTPX client that ends a call whose answer is too large.

    A byte of a reply takes up to six bytes in JSON, and a short chunk has much overhead.
    """
    longest, most = 6 * settings.max_reply_bytes + 65_536, 64 * settings.max_reply_bytes + 65_536

    async def limit(response: Any) -> None:
        if turn := RUNNING.get(None):
            turn.note_answer(response.status_code, response.headers.get("retry-after", ""))
        read = response.aiter_bytes

        async def bounded(chunk_size: int | None = None) -> Any:
            # Invalid UTF-8 becomes U+FFFD, as in browsers; the clients would fail.
            decoder, line, total = getincrementaldecoder("utf-8")("replace"), 0, 0
            async for chunk in read(chunk_size):
                total += len(chunk)
                line = len(chunk) - chunk.rfind(b"\n") - 1 + (0 if b"\n" in chunk else line)
                if line > longest or total > most:
                    raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
                yield decoder.decode(chunk).encode()

        response.aiter_bytes = bounded

    return {"response": [limit]}
