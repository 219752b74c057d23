"""Extraction of facts, as a capability."""

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
LONGEST = 40_000  # characters of an answer
MAX_TEXT_CHARS, MAX_TRANSCRIPT_CHARS = 8_000, 200_000
REFUSED = r"HTTP 4(00|13|22)\b"
NOT_REACHED = r"\bConnect(Error|Timeout)\b|Connection refused|\b(Client|Endpoint)Connect"


class Extraction(Capability):
    """Turns what was said into facts, for the memories whose files say `extraction: "model"`."""

    settings: ExtractionSettings

    def __init__(
        self, settings: ExtractionSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._before, self._long_term = before, LongTermMemory.find(before)
        self._long_term.extract = self.extract

    @property
    def model_name(self) -> str:
        """The model that finds facts."""
        offline = self.settings.model == "offline"
        return "offline" if offline else self.settings.extraction_model or self.settings.model

    @cached_property
    def model(self) -> Any:
        """The client of the model, or None: offline there is none."""
        name = self.model_name
        settings = replace(self.settings, model=name, prompt_cache=0)
        return None if name == "offline" else self.load().model.build_model(settings)

    def check(self) -> list[Finding]:
        name = self.settings.extraction_model
        if name and self.settings.model == "offline":
            what = "EXTRACTION_MODEL has no effect while MODEL is not set."
        elif name and name == self.settings.model:
            what = "EXTRACTION_MODEL is the same as MODEL: it can be left out."
        else:
            return []
        return [diagnostic("SET-EXTRACTION_MODEL", what, "warning")]

    async def ping(self) -> list[Finding]:
        name = self.settings.extraction_model
        return await call_model(self.load().model, self.settings, "EXTRACTION_MODEL", name)

    def describe(self, address: str) -> list[str]:
        names = [writer.id for writer in self._long_term.writers if writer.extracts]
        if not names:
            return []
        offline = self.model_name == "offline"
        how = "what users say, until MODEL is set" if offline else f"found by {self.model_name}"
        return [f"Facts for {', '.join(names)}: {how}"]

    async def extract(self, actor: str, turns: Turns) -> list[Utterance]:
        """Return the facts of an actor's turns, and what was added to the memory as it is.

        Turns whose texts of the user have the same metadata are read together. Raises
        MemoryRefused if another call would fail, too, and MemoryUnavailable: a transient one if
        the model did no work.
        """
        found: list[Utterance] = []
        for metadata, group in groupby(turns, key=_metadata_of):
            said = [text for texts in group for text in texts]
            talk = [text for text in said if not text.is_fact]
            facts = await self._facts(actor, talk) if talk else []
            found += [Utterance("USER", fact, metadata) for fact in facts]
            found += [text for text in said if text.is_fact]
        return found

    async def _facts(self, actor: str, talk: Sequence[Utterance]) -> list[str]:
        policy = self._long_term.policy
        seconds = self.settings.extraction_timeout_seconds
        if self.model is None:
            return policy.offline_facts([text.text for text in talk if text.role == "USER"])
        model = wrap_model(self._before, self.model, actor)
        try:
            async with time_limit(seconds):
                answer = await ask(model, policy.facts_prompt, _transcript(talk), LONGEST)
        except TimeoutError:
            what = f"no facts within EXTRACTION_TIMEOUT_SECONDS={seconds}"
            raise MemoryUnavailable(what, transient=False) from None
        except Exception as error:
            why = describe(error)
            failure = MemoryRefused if re.search(REFUSED, why) else MemoryUnavailable
            is_free = is_busy(why) or re.search(NOT_REACHED, why) is not None
            raise failure(f"the model found no facts: {why}", transient=is_free) from error
        if not answer.is_whole:
            raise MemoryRefused("the model did not finish the facts", transient=False)
        facts = [fact for fact in policy.facts_in(well_formed(answer.text)) if not is_blank(fact)]
        tokens = f"{answer.input_tokens} tokens in, {answer.output_tokens} out"
        log.info("found %s facts in %s texts (%s)", len(facts), len(talk), tokens)
        return facts


def _metadata_of(texts: Sequence[Utterance]) -> Metadata:
    return next((text.metadata for text in texts if text.role == "USER"), {})


def _transcript(talk: Sequence[Utterance]) -> str:
    """Return texts as JSON strings in which nothing begins a line or closes the transcript."""
    most = min(MAX_TEXT_CHARS, max(100, MAX_TRANSCRIPT_CHARS // len(talk)))
    lines = [
        f"{text.role.capitalize()}: {json.dumps(_shorten(text.text, most), ensure_ascii=False)}"
        for text in talk
    ]
    quoted = re.sub("[<\x85\u2028\u2029]", lambda it: f"\\u{ord(it[0]):04x}", "\n".join(lines))
    return f"<transcript>\n{quoted}\n</transcript>\nWrite the facts of this transcript."


def _shorten(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
