"""The capability that summarizes the messages a full session drops."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any

from cachetools import LRUCache

from ..capability import Capability, wrap_model
from ..contract import Turn, is_blank, well_formed
from ..deadline import time_limit
from ..findings import Finding, diagnostic
from ..log import describe
from ..models.ask import Answer, ask
from ..models.context_length import is_too_long
from ..models.model_call import call_model
from ..modules import LoadModules
from ..sessions.sessions import Message, serialize
from . import adapter
from .settings import CompactionSettings
from .summary import (
    INSTRUCTIONS,
    LONGEST,
    REPLY,
    SIZES,
    Utterance,
    mark,
    offline_summary,
    transcript,
    unmark,
)

PAUSE = 600  # seconds after a failed summary without another attempt

log = logging.getLogger(__name__)


class NoSummaryError(Exception):
    """The summary failed. The message gives the reason and quotes no content."""


class PausedError(NoSummaryError):
    """The last summary failed recently, so this turn made no attempt."""

    def __str__(self) -> str:
        return "the last summary failed less than 10 minutes ago"


class Compaction(Capability):
    """Summarizes the messages that a full session drops. If it fails, only drops them."""

    settings: CompactionSettings

    def __init__(
        self, settings: CompactionSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before
        # By digest: a retried turn reuses the summary that it already paid for.
        self._summaries: LRUCache[bytes, str] = LRUCache(64)
        self._failures: LRUCache[str, float] = LRUCache(1024)  # the times of failures, by session
        self.now = time.monotonic

    @property
    def model_name(self) -> str:
        """The name of the summary model."""
        offline = self.settings.model == "offline"
        return "offline" if offline else self.settings.compaction_model or self.settings.model

    @cached_property
    def model(self) -> Any:
        """The client of the model, or None: the offline summary needs none."""
        name = self.model_name
        # Requests for summaries share no prefix, so prompt caching would only add costs.
        settings = replace(self.settings, model=name, prompt_cache=0)
        return None if name == "offline" else self.load().model.build_model(settings)

    def check(self) -> list[Finding]:
        name = self.settings.compaction_model
        findings = list[Finding]()
        if name and self.settings.model == "offline":
            message = "COMPACTION_MODEL has no effect while MODEL is not set."
            findings.append(diagnostic("SET-COMPACTION_MODEL", message, "warning"))
        elif name and name == self.settings.model:
            message = "COMPACTION_MODEL is the same as MODEL. Remove it."
            findings.append(diagnostic("SET-COMPACTION_MODEL", message, "warning"))
        seconds = self.settings.compaction_timeout_seconds
        limit = self.settings.turn_timeout_seconds
        if seconds >= limit:
            message = (
                f"COMPACTION_TIMEOUT_SECONDS is {seconds}, not below TURN_TIMEOUT_SECONDS={limit}"
            )
            message += ": a turn with a summary can take more than twice as long."
            findings.append(diagnostic("SET-COMPACTION_TIMEOUT_SECONDS", message, "warning"))
        return findings

    async def ping(self) -> list[Finding]:
        name = self.settings.compaction_model
        return await call_model(self.load().model, self.settings, "COMPACTION_MODEL", name)

    def describe(self, address: str) -> list[str]:
        if self.model_name == "offline":
            return ["Compaction: summaries quote the user"]
        seconds = self.settings.compaction_timeout_seconds
        return [f"Compaction: {self.model_name} summarizes, within {seconds} s"]

    async def replace_dropped(
        self, turn: Turn, dropped: list[Message], at: int, last: int
    ) -> list[Message]:
        """Return the summary as messages; if it fails, keep the earlier summary."""
        if len(dropped) == at:  # only the earlier summary
            return dropped
        digest = sha256(serialize([turn.session_id, last, dropped])).digest()
        text = self._summaries.get(digest)
        if text is None:
            started_at = self.now()
            count = len(dropped) - at
            try:
                if started_at - self._failures.get(turn.session_id, -inf) < PAUSE:
                    raise PausedError
                text, tokens = await self._summarize(turn, dropped[:at], dropped[at:])
            except NoSummaryError as error:
                if not isinstance(error, PausedError):
                    self._failures[turn.session_id] = self.now()
                line = "session %s: turn %s continues without a summary of %s messages: %s"
                log.warning(line, turn.session_id, turn.number, count, error)
                return dropped[:at]
            line = "session %s: turn %s summarized %s messages in %s ms%s"
            milliseconds = round(1000 * (self.now() - started_at))
            log.info(line, turn.session_id, turn.number, count, milliseconds, tokens)
            self._summaries[digest] = text
        return adapter.write([("user", mark(text, last)), ("assistant", REPLY)])

    def committed(self, turn: Turn, messages: list[Any]) -> None:
        """End the pause: the next summary covers other messages."""
        self._failures.pop(turn.session_id, None)

    async def _summarize(
        self, turn: Turn, before: list[Any], messages: list[Any]
    ) -> tuple[str, str]:
        """Return a summary, and its token counts as text. Raises NoSummaryError."""
        seconds = self.settings.compaction_timeout_seconds
        try:
            async with time_limit(seconds) as limit:
                earlier = unmark(next((str(chunk) for _, chunk in adapter.read(before)), ""))
                utterances = list(adapter.read(messages))
                if self.model is None:
                    return offline_summary(earlier, utterances), ""
                model = wrap_model(self._before, self.model, turn.actor, turn)
                answer = await _ask(model, earlier, utterances)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                reason = f"it took longer than COMPACTION_TIMEOUT_SECONDS={seconds}"
                raise NoSummaryError(reason) from None
            raise NoSummaryError(f"the model failed: {describe(error)}") from error
        text = well_formed(answer.text).strip()
        if len(text) > LONGEST:
            raise NoSummaryError(f"it is longer than {LONGEST} characters")
        if not answer.is_whole:
            raise NoSummaryError("the model did not finish it")
        if is_blank(text):
            raise NoSummaryError("it is blank")
        tokens = f" ({answer.input_tokens} tokens in, {answer.output_tokens} out)"
        return text, tokens if answer.input_tokens or answer.output_tokens else ""


async def _ask(model: Any, earlier: str, utterances: list[Utterance]) -> Answer:
    """Return the answer to a transcript; shorten the transcript if it is too long for the model."""
    for size in SIZES[:-1]:
        try:
            return await ask(model, INSTRUCTIONS, transcript(earlier, utterances, size), LONGEST)
        except Exception as error:
            if not is_too_long(error):
                raise
    return await ask(model, INSTRUCTIONS, transcript(earlier, utterances, SIZES[-1]), LONGEST)
