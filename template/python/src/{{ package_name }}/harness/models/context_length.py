"""A request that is too long for the model: how it is recognized, and how it becomes shorter."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contract import AgentError
from ..log import causes_of, describe
from ..sessions.sessions import Message, Stage, chars_of

MAX_TRIES = 6  # in one turn
MIN_RESULT = 500  # characters of a tool's result that is not cut
MIN_PROMPT = 1000  # characters of a prompt that may be the reason
RESULTS_TOO_LONG = "The results of the tools are too long for the model. Ask for less at a time."
OWN_TOO_LONG = "The system prompt and the tools of the agent are too long for the model."

# What providers say about a request that is too long: OpenAI, Azure, Groq, Mistral, Anthropic,
# Bedrock, Gemini, vLLM, llama.cpp and xAI.
TOO_LONG = re.compile(
    "context_length_exceeded|maximum context length|reduce the length of the messages"
    "|exceeds? the context window|input tokens exceed the configured limit"
    "|prompt is too long|exceed context limit|request_too_large"
    "|input is too long for requested model|too many input tokens|too many total text bytes"
    "|exceeds the maximum number of tokens|longer than the maximum model length"
    "|exceed_context_size_error|exceeds the available context size|maximum prompt length is",
    re.IGNORECASE,
)
# A limit of tokens in a time, which a Strands class takes for the same.
AT_LIMIT = re.compile(r"rate[ _-]?limit|\bper (sec|min|hour|day|month)", re.IGNORECASE)
# The statuses of such a refusal. In a stream it has none, that of the stream, or one that a client
# makes up: 500 or 502.
STATUSES = {None, 200, 400, 413, 422, 500, 502}
MAX_TEXT = 4000  # characters of an error that are read, at its beginning and at its end
CUT = "… [cut: the result was {} characters long]"
CUT_END = re.compile(re.escape(CUT).replace(r"\{\}", "([0-9]{1,12})") + "$")

log = logging.getLogger(__name__)


def is_too_long(error: BaseException) -> bool:
    """Whether a model refused a request because it is too long."""
    causes = [*causes_of(error)]
    texts = [part for one in causes for text in _texts_of(one) for part in _ends_of(text)]
    if any(isinstance(one, AgentError) or _status_of(one) not in STATUSES for one in causes):
        return False
    if any(map(AT_LIMIT.search, texts)):
        return False
    is_known = any(type(one).__name__ == "ContextWindowOverflowException" for one in causes)
    return is_known or any(map(TOO_LONG.search, texts))


def _status_of(error: BaseException) -> Any:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of an AWS client
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    context = getattr(error, "http_context", None)  # of the AI SDK
    return getattr(context or error, "status_code", None)


def _texts_of(error: BaseException) -> list[str]:
    names = ("code", "type", "body", "response_body")
    return [str(error), *(str(getattr(error, name, "")) for name in names)]


def _ends_of(text: str) -> list[str]:
    return [text[:MAX_TEXT], text[-MAX_TEXT:]]


def cut_result(text: str, size: int) -> str:
    """Return the first characters of a tool's result, and how long it was."""
    return _cut([text], size)[0]


def cut_texts(texts: Sequence[str], most: int) -> list[str]:
    """Return the texts of a tool's result with at most `most` characters in all."""
    if sum(map(len, texts)) <= most:
        return [*texts]
    return _cut(texts, most - len(CUT.format(_length_of(texts))))


def _cut(texts: Sequence[str], size: int) -> list[str]:
    """Return the first `size` characters; the last text that is left says how many there were."""
    shorter, left, last = list[str](), size, 0
    for at, text in enumerate(texts):
        shorter.append(text[: max(left, 0)])
        last = at if shorter[at] else last
        left -= len(text)
    shorter[last] += CUT.format(_length_of(texts))
    return shorter


def _length_of(texts: Sequence[str]) -> int:
    """Return how long texts were, of which some may have been cut earlier."""
    earlier = [CUT_END.search(text) for text in texts]
    return sum(
        int(found[1]) if found else len(text) for text, found in zip(texts, earlier, strict=True)
    )


@dataclass
class CuttableResult:
    """The text of a tool's result, of which `cut` keeps the first `size` characters."""

    size: int
    cut: Callable[[int], None]


class Shortening:
    """Makes the requests of one turn shorter when its model refuses them for their length."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._tries = 0
        self._has_reduced = False  # the history
        self._cut = set[int]()  # the places of the results that were cut

    @property
    def history(self) -> list[Message]:
        """The messages that stand before the turn, as the session holds them."""
        return self._stage.history

    async def shorten(self, error: Exception, results: Sequence[CuttableResult]) -> None:
        """Shorten the history; if none is left, the results of this turn's tools.

        Raises the error if it is another one. If nothing is left to shorten, raises
        `prompt_too_long`, or `model_failed` if the prompt is not the reason.
        """
        if not is_too_long(error):
            raise error
        self._tries += 1
        # Later tries are for the results, if these take more room.
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
        await self._reduce()  # only a summary is left

    async def _reduce(self, *, drops_all: bool = False) -> None:
        before = len(self.history)
        await self._stage.reduce(drops_all=drops_all)
        self._has_reduced = self._has_reduced or len(self.history) < before

    def _reason(self, results: Sequence[CuttableResult]) -> str:
        """Return what is too long, or "" for the prompt: the rest of the request is not larger."""
        if _size_of(results) > len(self._stage.turn.prompt):
            return RESULTS_TOO_LONG
        return "" if len(self._stage.turn.prompt) > MIN_PROMPT else OWN_TOO_LONG

    def report(self) -> None:
        """Log what was shortened, if a request was too long."""
        parts = list[str]()
        if self._has_reduced:
            parts.append(f"the history was shortened to {len(self.history)} messages")
        if self._cut:
            parts.append(f"{len(self._cut)} tool results were cut")
        if parts:
            log.warning("model: the request was too long; %s", "; ".join(parts))


def _halve(results: Sequence[CuttableResult]) -> set[int]:
    """Cut the largest results to half until all are half as long; return their places."""
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
