"""What the prompt caches of the vendors would serve, and what a request would cost.

Counted as of November 2026, by the vendors' documents on prompt caching. Anthropic, and Claude on
Amazon Bedrock: a cache point stores all blocks up to it; a request reads the longest stored prefix
that ends at most 20 blocks before one of its cache points; below 1,024 tokens nothing is stored.
What is read costs 0.1 of an input token, what is stored 1.25. OpenAI: the longest common beginning
of at least 1,024 tokens with an earlier request is read, in steps of 128 tokens; what is read costs
0.1 (GPT-5), and what is stored nothing more. A token is counted as four characters.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LOOKBACK, LEAST, STEP = 20, 1024, 128


def common(before: str, after: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


@dataclass(frozen=True)
class Usage:
    """Input tokens: full price, read from the cache, stored in it."""

    plain: int = 3
    read: int = 0
    stored: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        sums = (self.plain + other.plain, self.read + other.read, self.stored + other.stored)
        return Usage(*sums)

    @property
    def total(self) -> int:
        return self.plain + self.read + self.stored

    @property
    def price(self) -> float:
        return self.plain + 0.1 * self.read + 1.25 * self.stored


class PromptCache:
    """The cache of one vendor; nothing expires."""

    def __init__(self) -> None:
        self._stored: set[bytes] = set()
        self._texts: list[str] = []

    def use(self, request: dict[str, Any]) -> Usage:
        """Serve a request: of Anthropic or Bedrock if it has cache points, else of OpenAI."""
        blocks = list(_blocks(request))
        points = [at for at, (_, is_point) in enumerate(blocks) if is_point]
        return self._explicit(blocks, points) if points else self._automatic(blocks)

    def _explicit(self, blocks: list[tuple[str, bool]], points: list[int]) -> Usage:
        sizes, digests, digest, size = [], [], hashlib.sha256(), 0
        for text, _ in blocks:
            digest.update(text.encode())
            size += len(text)
            sizes.append(size // 4)
            digests.append(digest.digest())
        near = {at for point in points for at in range(max(point - LOOKBACK, 0), point + 1)}
        read = max((sizes[at] for at in near if digests[at] in self._stored), default=0)
        kept = [at for at in points if sizes[at] >= LEAST]
        self._stored |= {digests[at] for at in kept}
        stored = max([read, *(sizes[at] for at in kept)]) - read
        return Usage(sizes[-1] - read - stored, read, stored)

    def _automatic(self, blocks: list[tuple[str, bool]]) -> Usage:
        text = "".join(text for text, _ in blocks)
        longest = max((common(text, old) for old in self._texts), default=0)
        self._texts.append(text)
        read = longest // 4 // STEP * STEP
        read = read if read >= LEAST else 0
        return Usage(len(text) // 4 - read, read)


def _blocks(request: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the blocks of a request in the order of caches, and whether a cache point follows."""
    tools = request.get("tools") or (request.get("toolConfig") or {}).get("tools") or []
    system = request.get("system") or []
    system = [system] if isinstance(system, str) else system
    groups = [[*tools], [*system]]
    for message in request["messages"]:
        content = message.get("content")
        if message.keys() == {"role", "content"} and isinstance(content, str):
            content = [{"type": "text", "text": content}]  # which means the same
        groups.append([message["role"], *(content if isinstance(content, list) else [message])])
    flat = [block for group in groups for block in group]
    for block, after in zip(flat, [*flat[1:], None], strict=True):
        if isinstance(block, dict) and "cachePoint" in block:
            continue
        is_point = isinstance(block, dict) and "cache_control" in block
        is_point = is_point or (isinstance(after, dict) and "cachePoint" in after)
        plain = {k: v for k, v in block.items() if k != "cache_control"} if is_point else block
        plain = block if isinstance(block, str) else plain
        yield json.dumps(plain, ensure_ascii=False), is_point
