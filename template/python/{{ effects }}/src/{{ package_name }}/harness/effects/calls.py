"""The calls of effects in a turn."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ..sessions.sessions import Stage
from .functions import EffectFunction, Rejected, canonical
from .outbox import Outbox, StartedElsewhere, identity_of, kept_of, unknown
from .records import FINAL, NAME, SKEW_SECONDS, Call, Section, digest_of, new_key

SCHEDULED = "Scheduled: this runs when the turn is saved. Effect {}."
DONE = "Done after the turn was saved: {}"
FAILED = "This failed after the turn was saved, and is not retried: {}"


class TurnCalls:
    """Records the calls of effects of a running turn."""

    def __init__(self, outbox: Outbox, stage: Stage) -> None:
        self._outbox = outbox
        self._stage = stage
        self._session = stage.session
        self._turn = stage.turn
        self._lock = asyncio.Lock()
        self.shown = self._show_results()

    def _show_results(self) -> list[Call]:
        """Show the model the results of scheduled calls, and return these calls."""
        section = self._outbox.view(self._session)
        calls = [call for call in section.calls if _is_result(call)]
        texts = {SCHEDULED.format(call.key): text_of(call) for call in calls}
        if texts:
            self._stage.history = _replaced(self._stage.history, texts)
        for call in section.calls:
            if call.status == "unknown" or (
                call.status == "started" and call.key not in self._outbox.running
            ):
                self._outbox.report(self._session.id, call, "its outcome is unknown")
        return calls

    @property
    def _identity(self) -> str:
        return identity_of(self._stage)

    @property
    def _kept(self) -> Any:
        """The data of the turn that it keeps while it waits for approvals."""
        kept = kept_of(self._turn)
        self._turn.kept[NAME] = kept
        return kept

    async def schedule(self, function: EffectFunction, arguments: str) -> str:
        """Record a call to run after the commit. Raises RuntimeError above a limit."""
        call = self._new_call(function, arguments, uuid4().hex, "scheduled")
        self._check_room(self._outbox.view(self._session), call)
        is_first = not self._kept["scheduled"]
        self._kept["scheduled"].append(call.model_dump())
        if is_first and self._outbox.index:
            # Before the commit: the process may end right after it.
            await self._outbox.index.add(self._session.id, SKEW_SECONDS)
        return SCHEDULED.format(call.key)

    async def run_once(self, function: EffectFunction, arguments: str) -> Any:
        """Run a call, or return the recorded result of an identical call.

        That call is of an earlier try of the turn, or its outcome was unknown to an earlier turn.

        Raises RuntimeError if the outcome of an earlier call is unknown, above a limit, or if the
        start of the call cannot be saved. Cancellation does not stop a started call.
        """
        async with self._lock:
            call = await self._find_or_start(function, arguments)
        if task := self._outbox.running.get(call.key):
            try:
                return await asyncio.shield(task)
            except Rejected:
                raise  # the receiver may repeat its answer to this key
            except BaseException:
                self._release_unfinished(call.key)
                raise
        if call.status == "failed":
            raise RuntimeError(call.result)
        return call.result

    async def _find_or_start(self, function: EffectFunction, arguments: str) -> Call:
        outbox = self._outbox
        digest = digest_of(function.name, arguments)
        section = outbox.view(self._session)
        call = self._find(section, digest)
        replaces = call.owner if call else ""
        if call is None:
            key = new_key(section, self._identity, digest, self._kept["used"])
            call = self._new_call(function, arguments, key, "started")
            self._check_room(section, call)
            self._use(key)
        else:
            is_running = call.key in outbox.running
            if call.is_open and not is_running:
                await self._resolve(function, call)
            self._use(call.key)
            if is_running and not call.is_of(self._identity):
                outbox.adopted.add(call.key)
            if is_running or not call.is_open:
                return call
            call.adopt(self._identity)
        now = time.time()
        call.status = "started"
        call.at = now
        call.owner = outbox.id
        call.until = now + outbox.settings.effect_timeout_seconds
        try:
            await outbox.start(self._session, function, call, replaces)
        except StartedElsewhere:
            self._release(call.key)
            return await self._find_or_start(function, arguments)
        return call

    def _find(self, section: Section, digest: str) -> Call | None:
        """Return the recorded call whose outcome the model's next call gets, or None."""
        used = self._kept["used"]

        def runs_beside(call: Call) -> bool:
            """Whether the model has asked for another call."""
            return call.key in used and call.key in self._outbox.running

        same = [call for call in section.calls if call.kind == "once" and call.digest == digest]
        unused = [call for call in same if call.key not in used]
        found = [call for call in unused if call.is_of(self._identity)]
        # Another call whose outcome is unknown may have had the effect that this call wants.
        found += [call for call in same if call.is_open and not runs_beside(call)]
        found += [call for call in unused if not call.is_open and call.wanted]
        return next(iter(found), None)

    def _use(self, key: str) -> None:
        if key not in self._kept["used"]:
            self._kept["used"].append(key)

    def _release_unfinished(self, key: str) -> None:
        """Let the next identical call get a later outcome, or run with the same key."""
        call = self._outbox.view(self._session).find(key)
        if call is None or call.is_open:
            self._release(key)

    def _release(self, key: str) -> None:
        kept = self._kept
        kept["used"] = [other for other in kept["used"] if other != key]

    async def _resolve(self, function: EffectFunction, call: Call) -> None:
        """Set the outcome of a started call; it stays open if it had no effect and may run again.

        Raises RuntimeError if the outcome is unknown.
        """
        outbox = self._outbox
        outcome = await outbox.resolve(self._session.id, function, call)
        seconds = call.until + SKEW_SECONDS - time.time()
        is_foreign = call.status == "started" and call.owner != outbox.id
        if outcome.status == "removed":
            if is_foreign and seconds > 0:
                message = f"An earlier call of {call.tool} may still be running. Repeat the turn"
                raise RuntimeError(f"{message} in {int(seconds) + 1} seconds.")
            return
        if outcome.status == "unknown" and is_foreign and seconds > 0:
            raise RuntimeError(unknown(call))  # its process may still record the outcome
        if outcome.status == "done" and not call.is_of(self._identity):
            outcome = replace(outcome, wanted=True)  # also for the repetition, if this turn fails
        outbox.outcomes[self._session.id][call.key] = outcome
        if outcome.status == "unknown":
            raise RuntimeError(unknown(call))
        call.status = "done"
        call.result = outcome.result

    def _new_call(self, function: EffectFunction, arguments: str, key: str, status: Any) -> Call:
        return Call(
            key=key,
            kind=function.kind,
            tool=function.name,
            arguments=json.loads(arguments),
            digest=digest_of(function.name, arguments),
            turn=self._turn.number,
            identity=self._identity,
            status=status,
            at=time.time(),
        )

    def _check_room(self, section: Section, call: Call) -> None:
        """Raise RuntimeError if the limits leave no room for a call."""
        settings = self._outbox.settings
        for row in [*self._kept["scheduled"], call]:
            section.put(Call.model_validate(row))
        if not self._outbox.make_room(self._session.id, section):
            limits = f"MAX_EFFECTS={settings.max_effects}"
            limits += f", MAX_EFFECT_BYTES={settings.max_effect_bytes}"
            problem = "the open effects of this session and those of this turn leave no room"
            raise RuntimeError(f"{call.tool} did not run: {problem} ({limits}).")


def text_of(call: Call) -> str:
    """Return the result of a scheduled call for the model."""
    result = call.result if isinstance(call.result, str) else canonical(call.result)
    return (FAILED if call.status == "failed" else DONE).format(result)


def _is_result(call: Call) -> bool:
    return call.kind == "after_commit" and call.status in FINAL


def _replaced(value: Any, texts: dict[str, str]) -> Any:
    """Return a JSON value with whole strings replaced; unchanged parts are not copied."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [_replaced(item, texts) for item in value]
    if isinstance(value, dict):
        return {name: _replaced(item, texts) for name, item in value.items()}
    return value
