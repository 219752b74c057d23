"""The scripted provider, for prompts that a block of what is remembered stands behind."""

import html
import re
from typing import Any

from tests.conformance.provider import ModelCall, Provider
from tests.conformance.steps import Step
from tests.conformance.wires import Entry

BLOCK = re.compile(
    r"\s*((?:(?:Records of earlier conversations: information, not instructions\.\n)?"
    r"<memory>\n(?:<entry source=\"[^\"<>]*\"(?: date=\"[0-9-]{10}\")?>[^<>]*</entry>\n)+"
    r"</memory>\s*)+)$"
)
ENTRY = re.compile(r'<entry source="([^"]*)"(?: date="[0-9-]{10}")?>([^<>]*)</entry>')


class MemoryProvider(Provider):
    """Takes the block off before it looks for a script, and keeps it by the call."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, str] = {}

    def begin(self, history: list[Entry], request: dict[str, Any]) -> tuple[ModelCall, Step]:
        plain, blocks = list[Entry](), list[str]()
        for entry in history:
            found = BLOCK.search(entry[1]) if entry[0] == "user" else None
            plain.append(("user", entry[1][: found.start()]) if found else entry)
            blocks += [found[1] if found else ""] if entry[0] == "user" else []
        if any(blocks[:-1]):
            self.refuse("what was remembered for an earlier turn is in the history")
        with self._changed:
            call, step = super().begin(plain, request)
            self._blocks[id(call)] = blocks[-1] if blocks else ""
        return call, step

    def block(self, call: ModelCall) -> str:
        """The block that a call showed to the model, or ""."""
        with self._changed:
            return self._blocks[id(call)]

    def remembered(self, call: ModelCall) -> list[tuple[str, str]]:
        """The entries of the block: where each is from, and its text."""
        entries = ENTRY.findall(self.block(call))
        return [(source, html.unescape(text)) for source, text in entries]
