"""Recognizes requests that are too long for the model, and shortens them."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contract import AgentError
from ..log import causes_of, describe
from ..sessions.sessions import Message, Stage, chars_of

MAX_TRIES = 6  # per turn
MIN_RESULT = 500  # characters of a tool's result that is never cut
MIN_PROMPT = 1000  # characters of a prompt that may be too long
RESULTS_TOO_LONG = "The tool results are too long for the model. Ask for less at a time."
OWN_TOO_LONG = "The system prompt and the tools are too long for the model. Shorten them."

# Error texts about long requests of OpenAI, Azure, Groq, Mistral, Anthropic, Bedrock, Gemini, vLLM,
# llama.cpp and xAI.
TOO_LONG = re.compile(
    "context_length_exceeded|maximum context length|reduce the length of the messages"
    "|exceeds? the context window|input tokens exceed the configured limit"
    "|prompt is too long|exceed context limit|request_too_large"
    "|input is too long for requested model|too many input tokens|too many total text bytes"
    "|exceeds the maximum number of tokens|longer than the maximum model length"
    "|exceed_context_size_error|exceeds the available context size|maximum prompt length is",
    re.IGNORECASE,
)
# Token rate limits, for which Strands raises the same exception.
AT_LIMIT = re.compile(r"rate[ _-]?limit|\bper (sec|min|hour|day|month)", re.IGNORECASE)
# HTTP statuses of these errors. An error in a stream has no status or the status of the stream;
# SDKs may also report 500 or 502.
STATUSES = {None, 200, 400, 413, 422, 500, 502}
MAX_TEXT = 4000  # characters read at the start and the end of an error
CUT = "… [cut: the result was {} characters long]"
CUT_END = re.compile(re.escape(CUT).replace(r"\{\}", "([0-9]{1,12})") + "$")

log = logging.getLogger(__name__)


def is_too_long(error: BaseException) -> bool:
    """Whether a model rejected a request because of its length."""
    causes = [*causes_of(error)]
    texts = texts_of(causes)
    if any(isinstance(it, AgentError) or status_of(it) not in STATUSES for it in causes):
        return False
    if any(map(AT_LIMIT.search, texts)):
        return False
    is_known = any(type(it).__name__ == "ContextWindowOverflowException" for it in causes)
    return is_known or any(map(TOO_LONG.search, texts))


def status_of(error: BaseException) -> Any:
    """Return the HTTP status of a client's error, or None."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # AWS clients
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    context = getattr(error, "http_context", None)  # the AI SDK
    return getattr(context or error, "status_code", None)


def texts_of(errors: Iterable[BaseException]) -> list[str]:
    """Return the first and the last MAX_TEXT characters of the texts of errors."""
    names = ("code", "type", "body", "response_body")
    texts = list[str]()
    for error in errors:
        texts += [str(error), *(str(getattr(error, name, "")) for name in names)]
    return [part for text in texts for part in (text[:MAX_TEXT], text[-MAX_TEXT:])]


def cut_result(text: str, size: int) -> str:
    """Cut a tool's result to `size` characters and append its length."""
    return _cut([text], size)[0]


def cut_texts(texts: Sequence[str], max_chars: int) -> list[str]:
    """Cut the texts of a tool's result to `max_chars` characters in total."""
    if sum(map(len, texts)) <= max_chars:
        return [*texts]
    return _cut(texts, max_chars - len(CUT.format(_length_of(texts))))


def _cut(texts: Sequence[str], size: int) -> list[str]:
    """Cut texts to `size` characters; append the original length to the last remaining text."""
    shorter = list[str]()
    left = size
    last = 0
    for at, text in enumerate(texts):
        shorter.append(text[: max(left, 0)])
        last = at if shorter[at] else last
        left -= len(text)
    shorter[last] += CUT.format(_length_of(texts))
    return shorter


def _length_of(texts: Sequence[str]) -> int:
    """Return the original length of texts, including earlier cuts."""
    earlier = [CUT_END.search(text) for text in texts]
    return sum(
        int(found[1]) if found else len(text) for text, found in zip(texts, earlier, strict=True)
    )


@dataclass
class CuttableResult:
    """A tool's result of `size` characters; `cut` shortens it."""

    size: int
    cut: Callable[[int], None]


class Shortening:
    """Shortens a turn's requests when the model rejects their length."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._tries = 0
        self._has_reduced = False  # the history
        self._cut = set[int]()  # indexes of the cut results

    @property
    def history(self) -> list[Message]:
        """The messages before the turn."""
        return self._stage.history

    async def shorten(self, error: Exception, results: Sequence[CuttableResult]) -> None:
        """Shorten the history; if there is no history, shorten the tool results of this turn.

        Re-raises errors with other reasons. Raises `prompt_too_long` if only the prompt is left, or
        `model_failed` if the prompt is short.
        """
        if not is_too_long(error):
            raise error
        self._tries += 1
        # Later tries shorten the results, if they are longer than the history.
        is_small = self._tries > 2 and chars_of(self.history) <= _size_of(results)
        is_last = self._tries > MAX_TRIES
        if self._stage.turns and not is_last:
            await self._reduce(drops_all=is_small)
            return
        cut = set[int]() if is_last else _halve(results)
        self._cut |= cut
        if cut:
            return
        if is_last or not self.history:
            reason = self._reason(results)
            kind = "model_failed" if reason else "prompt_too_long"
            raise AgentError(kind, reason, describe(error)) from error
        await self._reduce()  # only a summary remains

    async def _reduce(self, *, drops_all: bool = False) -> None:
        before = len(self.history)
        await self._stage.reduce(drops_all=drops_all)
        self._has_reduced = self._has_reduced or len(self.history) < before

    def _reason(self, results: Sequence[CuttableResult]) -> str:
        """Return a message about the longest part of the request, or "" for the prompt."""
        if _size_of(results) > len(self._stage.turn.prompt):
            return RESULTS_TOO_LONG
        has_files = self._stage.turn.request.files or self._stage.repeated_files
        is_long = len(self._stage.turn.prompt) > MIN_PROMPT or has_files
        return "" if is_long else OWN_TOO_LONG

    def report(self) -> None:
        """Log the shortened parts of the requests."""
        parts = list[str]()
        if self._has_reduced:
            parts.append(f"the history was shortened to {len(self.history)} messages")
        if self._cut:
            parts.append(f"{len(self._cut)} tool results were cut")
        if parts:
            log.warning("model: the request was too long; %s", "; ".join(parts))


def _halve(results: Sequence[CuttableResult]) -> set[int]:
    """Halve the largest results until the total is halved; return their indexes."""
    goal = _size_of(results) / 2
    cut = set[int]()
    while _size_of(results) > goal:
        place, largest = max(enumerate(results), key=lambda it: it[1].size)
        if largest.size < MIN_RESULT:
            break
        largest.size //= 2
        largest.cut(largest.size)
        cut.add(place)
    return cut


def _size_of(results: Sequence[CuttableResult]) -> int:
    return sum(result.size for result in results)
