"""A request that is too long for the model: how it is recognized, and how it becomes shorter."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .contract import AgentError, Turn
from .log import describe
from .sessions import Session, chars_of

MAX_TRIES = 6  # in one turn
MIN_RESULT = 500  # characters of a tool's result that is not cut

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
MAX_TEXT = 4000  # characters of an error that are read
CUT = "… [cut: the result was {} characters long]"
CUT_END = re.compile(re.escape(CUT).replace(r"\{\}", "([0-9]{1,12})") + "$")

log = logging.getLogger(__name__)


def is_too_long(error: BaseException) -> bool:
    """Whether a model refused a request because it is too long."""
    causes = [*_causes(error)]
    texts = [text[:MAX_TEXT] for one in causes for text in _texts_of(one)]
    if any(isinstance(one, AgentError) or _status_of(one) not in STATUSES for one in causes):
        return False
    if any(map(AT_LIMIT.search, texts)):
        return False
    is_known = any(type(one).__name__ == "ContextWindowOverflowException" for one in causes)
    return is_known or any(map(TOO_LONG.search, texts))


def _causes(error: BaseException) -> Iterator[BaseException]:
    known = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        yield cause
        known.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _status_of(error: BaseException) -> Any:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of an AWS client
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    context = getattr(error, "http_context", None)  # of the AI SDK
    return getattr(context or error, "status_code", None)


def _texts_of(error: BaseException) -> list[str]:
    names = ("code", "type", "body", "response_body")
    return [str(error), *(str(getattr(error, name, "")) for name in names)]


def cut_result(text: str, size: int) -> str:
    """Return the first characters of a tool's result, and how long it was."""
    earlier = CUT_END.search(text)
    length = earlier[1] if earlier else len(text)
    return text[:size] + CUT.format(length)


@dataclass
class CuttableResult:
    """The text of a tool's result, of which `cut` keeps the first `size` characters."""

    size: int
    cut: Callable[[int], None]


class Shortening:
    """Makes the requests of one turn shorter when its model refuses them for their length."""

    def __init__(self, session: Session, turn: Turn) -> None:
        self.session, self._turn, self._tries = session, turn, 0

    @property
    def history(self) -> list[Any]:
        """The messages that stand before the turn, as the session holds them."""
        messages: list[Any] = self.session.data["messages"]
        return messages[: self.session.start["at"]]

    async def shorten(self, error: Exception, results: Sequence[CuttableResult]) -> None:
        """Shorten the history; if none is left, the results of this turn's tools.

        Raises the error if it is another one; `prompt_too_long` if only the prompt is left.
        """
        if not is_too_long(error):
            raise error
        self._tries += 1
        # Later tries are for the results, if these take more room.
        is_small = self._tries > 2 and chars_of(self.history) <= _size_of(results)
        is_last = self._tries > MAX_TRIES
        if self.session.turns and not is_last:
            await self.session.reduce(self._turn, is_small)
        elif is_last or not _halve(results):
            if is_last or not self.history:
                raise AgentError("prompt_too_long", detail=describe(error)) from error
            await self.session.reduce(self._turn)  # only a summary is left

    def report(self) -> None:
        """Log what became of the history, if a request was too long."""
        if self._tries:
            what = "model: the request was too long; the history was shortened to %s messages"
            log.warning(what, len(self.history))


def _halve(results: Sequence[CuttableResult]) -> bool:
    """Cut the largest results to half until all are half as long; return whether one was cut."""
    goal = _size_of(results) / 2
    is_cut = False
    while _size_of(results) > goal:
        largest = max(results, key=lambda result: result.size)
        if largest.size < MIN_RESULT:
            break
        largest.size //= 2
        largest.cut(largest.size)
        is_cut = True
    return is_cut


def _size_of(results: Sequence[CuttableResult]) -> int:
    return sum(result.size for result in results)
