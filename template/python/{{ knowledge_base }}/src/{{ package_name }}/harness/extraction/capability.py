"""The capability that extracts facts from turns."""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

from ..capability import Capability, wrap_model
from ..contract import is_blank, is_busy, well_formed
from ..deadline import time_limit
from ..findings import Finding, diagnostic
from ..log import describe
from ..memory.base import MemoryRefused, MemoryUnavailable, Metadata, Turns, Utterance
from ..memory.long_term import LongTermMemory
from ..models.ask import ask
from ..models.model_call import call_model
from ..modules import LoadModules
from .settings import ExtractionSettings

log = logging.getLogger(__name__)
MAX_ANSWER_CHARS = 40_000
MAX_TEXT_CHARS = 8_000
MAX_TRANSCRIPT_CHARS = 200_000
REFUSED = r"HTTP 4(00|13|22)\b"
NOT_REACHED = r"\bConnect(Error|Timeout)\b|Connection refused|\b(Client|Endpoint)Connect"


class Extraction(Capability):
    """Extracts facts from turns, for collections with `extraction: "model"`."""

    settings: ExtractionSettings

    def __init__(
        self, settings: ExtractionSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before = before
        self._long_term = LongTermMemory.find(before)
        self._long_term.extract = self.extract

    @property
    def model_name(self) -> str:
        """The name of the model that extracts facts."""
        offline = self.settings.model == "offline"
        return "offline" if offline else self.settings.extraction_model or self.settings.model

    @cached_property
    def model(self) -> Any:
        """The client of the model; None with the echo model."""
        name = self.model_name
        settings = replace(self.settings, model=name, prompt_cache=0)
        return None if name == "offline" else self.load().model.build_model(settings)

    def check(self) -> list[Finding]:
        name = self.settings.extraction_model
        if name and self.settings.model == "offline":
            message = "EXTRACTION_MODEL has no effect without MODEL: set MODEL too."
        elif name and name == self.settings.model:
            message = "EXTRACTION_MODEL is the same as MODEL: remove it."
        else:
            return []
        return [diagnostic("SET-EXTRACTION_MODEL", message, "warning")]

    async def ping(self) -> list[Finding]:
        name = self.settings.extraction_model
        return await call_model(self.load().model, self.settings, "EXTRACTION_MODEL", name)

    def describe(self, address: str) -> list[str]:
        names = [writer.id for writer in self._long_term.writers if writer.extracts]
        if not names:
            return []
        offline = self.model_name == "offline"
        source = (
            "user messages, until MODEL is set" if offline else f"extracted by {self.model_name}"
        )
        return [f"Facts for {', '.join(names)}: {source}"]

    async def extract(self, actor: str, turns: Turns) -> list[Utterance]:
        """Return the facts of an actor's turns, and the texts that were added unchanged.

        Extracts facts from adjacent turns together if their user texts have equal metadata. Raises
        MemoryRefused if a retry would fail too, else MemoryUnavailable, which is transient if the
        model was not billed.
        """
        utterances: list[Utterance] = []
        for metadata, group in groupby(turns, key=_metadata_of):
            texts_of_group = [text for texts in group for text in texts]
            dialog = [text for text in texts_of_group if not text.is_fact]
            facts = await self._facts(actor, dialog) if dialog else []
            utterances += [Utterance("USER", fact, metadata) for fact in facts]
            utterances += [text for text in texts_of_group if text.is_fact]
        return utterances

    async def _facts(self, actor: str, dialog: Sequence[Utterance]) -> list[str]:
        policy = self._long_term.policy
        seconds = self.settings.extraction_timeout_seconds
        if self.model is None:
            return policy.offline_facts([text.text for text in dialog if text.role == "USER"])
        model = wrap_model(self._before, self.model, actor)
        try:
            async with time_limit(seconds):
                answer = await ask(
                    model, policy.facts_prompt, _transcript(dialog), MAX_ANSWER_CHARS
                )
        except TimeoutError:
            problem = f"no facts within EXTRACTION_TIMEOUT_SECONDS={seconds}"
            raise MemoryUnavailable(problem, transient=False) from None
        except Exception as error:
            reason = describe(error)
            failure = MemoryRefused if re.search(REFUSED, reason) else MemoryUnavailable
            is_transient = is_busy(reason) or re.search(NOT_REACHED, reason) is not None
            raise failure(
                f"the model extracted no facts: {reason}", transient=is_transient
            ) from error
        if not answer.is_whole:
            raise MemoryRefused("the model's list of facts is incomplete", transient=False)
        facts = [fact for fact in policy.facts_in(well_formed(answer.text)) if not is_blank(fact)]
        tokens = f"{answer.input_tokens} tokens in, {answer.output_tokens} out"
        log.info("extracted %s facts from %s texts (%s)", len(facts), len(dialog), tokens)
        return facts


def _metadata_of(texts: Sequence[Utterance]) -> Metadata:
    return next((text.metadata for text in texts if text.role == "USER"), {})


def _transcript(dialog: Sequence[Utterance]) -> str:
    """Return the transcript of texts, as JSON strings that cannot end a line or the transcript."""
    limit = min(MAX_TEXT_CHARS, max(100, MAX_TRANSCRIPT_CHARS // len(dialog)))
    lines = [
        f"{text.role.capitalize()}: {json.dumps(_shorten(text.text, limit), ensure_ascii=False)}"
        for text in dialog
    ]
    quoted = re.sub("[<\x85\u2028\u2029]", lambda it: f"\\u{ord(it[0]):04x}", "\n".join(lines))
    return f"<transcript>\n{quoted}\n</transcript>\nWrite the facts of this transcript."


def _shorten(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"
