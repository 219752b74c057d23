"""Runs the effects of this process, and records their outcomes in the sessions.

The session is the outbox: a save adds and removes records, and its compare-and-set decides which
process runs them. Before a process runs scheduled calls, a save claims them for a limited time.
"""

import asyncio
import json
import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol
from uuid import uuid4

from ..contract import AgentError, Turn
from ..deadline import is_cancelled, retrieve_error
from ..log import describe, log_unexpected, place_of
from ..sessions.sessions import LastTurn, Session, Sessions, Stage
from .functions import FUNCTIONS, Effect, EffectFunction, Rejected, canonical
from .records import NAME, SKEW_SECONDS, Call, Section, read_section
from .settings import EffectSettings

log = logging.getLogger(__name__)
FIRST_PAUSE = 0.5  # seconds; each further pause is twice as long
MAX_PAUSE = 30.0
MAX_PAUSES = 10  # after failures of the store; later, the next opening of the session continues
NOT_JSON = "The call is done. Its result could not be recorded."
TOO_LARGE = "The result was too large to be recorded."
MAX_REASON = 1000  # characters of a recorded failure


class Index(Protocol):
    """The sessions with open effects, for all processes. Methods do not raise."""

    async def add(self, session_id: str, seconds: float) -> None:
        """Add a session, so that each process looks at it after `seconds`."""

    async def remove(self, session_id: str) -> None:
        """Remove a session, unless another process has added it since."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call.

    "removed" removes the record, because the call had no effect. "scheduled" is a failed try, or a
    person's decision to retry.
    """

    status: Literal["done", "failed", "unknown", "removed", "scheduled"]
    result: Any = None
    wanted: bool = False  # whether the next identical call of `once` gets it
    tried: float = 0  # the first try of a scheduled call
    owner: str = ""  # the process of the start; empty: a scheduled call, or a person decided

    def changes(self, call: Call) -> bool:
        """Whether the record of a call gets the outcome; another save may have been earlier."""
        if "done" in (call.status, self.status):
            return call.status != "done"
        if self.owner:
            return call.is_open and call.owner == self.owner
        return call.is_open or not self.tried


@dataclass(frozen=True)
class Start:
    """A call of `once` for the next save."""

    call: Call
    replaces: str  # the process of the earlier start with this key, or ""

    def can_replace(self, saved: Call | None) -> bool:
        """Whether no other process has saved a start with this key meanwhile."""
        if saved is None:
            return True
        return saved.is_open and saved.owner in (self.call.owner, self.replaces)


class StartedElsewhere(Exception):
    """Another process has started the call with this key."""


class Interrupted(Exception):
    """A function raised CancelledError, although nothing has cancelled its task."""


class Outbox:
    """The effects of a process."""

    sessions: Sessions
    index: Index | None = None

    def __init__(self, settings: EffectSettings) -> None:
        self.id = uuid4().hex
        self.settings = settings
        self.outcomes: dict[str, dict[str, Outcome]] = defaultdict(dict)  # that no save has, by key
        self.starts: dict[str, dict[str, Start]] = defaultdict(dict)  # for the next save, by key
        self.running: dict[str, asyncio.Task[Any]] = {}  # calls of `once` by key
        self.adopted: set[str] = set()  # the keys of running calls that a later turn waits for
        self.stages: dict[str, Stage] = {}  # of the running turns
        self._ids: dict[str, str] = {}  # of sections that no save has
        self.workers: dict[str, asyncio.Task[None]] = {}
        self._is_working: set[str] = set()
        self._again: set[str] = set()  # sessions to watch when their worker ends
        self._claims = set[str]()  # the sessions whose next save claims their calls
        self._owned: set[str] = set()
        self._closing = asyncio.Event()
        self._reported: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or an outcome is not saved."""
        return bool(self.running or self._is_working or any(self.outcomes.values()))

    # Records -------------------------------------------------------------------------------

    def view(self, session: Session) -> Section:
        """Return the records of a session with the outcomes that no save has."""
        section = self._read(session.id, session.records)
        self._merge(session.id, section)
        return section

    def _read(self, session_id: str, records: dict[str, Any]) -> Section:
        section = read_section(records)
        if NAME not in records:
            section.id = self._ids.setdefault(session_id, section.id)
        return section

    def _merge(self, session_id: str, section: Section) -> None:
        for start in self.starts.get(session_id, {}).values():
            if start.can_replace(section.find(start.call.key)):
                section.put(start.call)
        outcomes = self.outcomes.get(session_id, {})
        for call in [*section.calls]:
            outcome = outcomes.get(call.key)
            if outcome is None or not outcome.changes(call):
                continue
            if outcome.status == "removed":
                section.remove({call.key})
                continue
            call.status = outcome.status
            call.result = self._recorded(outcome)
            call.wanted = call.wanted or outcome.wanted
            call.tried = outcome.tried
            if call.status == "done":
                call.arguments = {}

    def _recorded(self, outcome: Outcome) -> Any:
        """Return the result of an outcome as the session records it."""
        if outcome.status == "failed":
            return outcome.result[:MAX_REASON]
        if outcome.status == "done":
            size = len(canonical(outcome.result).encode(errors="replace"))
            if size > self.settings.max_effect_bytes / 4:
                return TOO_LARGE
        return outcome.result

    def make_room(self, session_id: str, section: Section) -> bool:
        """Drop old results until the limits hold; return whether they do.

        The running turn keeps its results, because it may fail and be repeated.
        """
        kept = set[str]()
        if stage := self.stages.get(session_id):
            kept.update(kept_of(stage.turn)["used"])
            kept.update(call.key for call in section.calls if call.is_of(identity_of(stage)))
        return section.make_room(self.settings.max_effects, self.settings.max_effect_bytes, kept)

    def update(self, session: Session, last: LastTurn, turn: Turn | None, shown: set[str]) -> None:
        """Update the records before a save; `turn` commits its calls and has shown `shown`."""
        id = session.id
        records = last["records"]
        added = [Call.model_validate(row) for row in kept_of(turn)["scheduled"]]
        is_changed = added or self.starts.get(id) or self.outcomes.get(id)
        if NAME not in records and not is_changed:
            return
        section = self._read(id, records)
        self._merge(id, section)
        now = time.time()
        is_foreign = section.is_of_other(self.id, now)
        if not is_foreign:
            # A turn that is replaced or taken back must not have effects.
            number = turn.number - 1 if turn else last["turn"]
            section.remove({it.key for it in section.scheduled if it.turn > number})
        section.remove(shown)
        for call in added:
            section.put(call)
        if turn:
            section.commit(identity_of(self.stages[id]), kept_of(turn)["used"])
        if added or self.starts.get(id):  # an outcome is recorded even above the limits
            self.make_room(id, section)
        section.open = len(section.scheduled)
        is_released = self._closing.is_set() and section.owner == self.id
        if is_released or not section.open:
            section.owner = ""
        elif not is_foreign and (added or id in self._claims):
            section.owner = self.id
            section.until = now + 2 * self.settings.effect_timeout_seconds + SKEW_SECONDS
            self._owned.add(id)
        if section.calls or NAME in records:  # the keys of later calls need its id
            records[NAME] = section.model_dump(exclude_defaults=True)

    async def save(self, session_id: str) -> None:
        """Save the starts and outcomes of a session. Raises AgentError.

        Cancellation does not stop the save.
        """
        saving = asyncio.create_task(self._save(session_id), context=Context())
        saving.add_done_callback(retrieve_error)
        await asyncio.shield(saving)

    async def _save(self, session_id: str) -> None:
        outcomes = {**self.outcomes.get(session_id, {})}
        if stage := self.stages.get(session_id):
            await stage.session.save_records()
        else:
            async with self.sessions.open_for_work(session_id) as session:
                if session.snapshot:
                    await session.save_records()
        self._forget_outcomes(session_id, outcomes)

    def _forget_outcomes(self, session_id: str, saved: dict[str, Outcome]) -> None:
        remaining = self.outcomes.get(session_id, {})
        for key, outcome in saved.items():
            if remaining.get(key) is outcome:
                del remaining[key]
        if not remaining:
            self.outcomes.pop(session_id, None)

    # The calls of `once` ---------------------------------------------------------------------

    async def start(
        self, session: Session, function: EffectFunction, call: Call, replaces: str
    ) -> None:
        """Save a call of `once` as started, then run it in a task of `running`.

        Raises RuntimeError if the save fails or the turn has ended, and StartedElsewhere: then the
        call does not run.
        """
        start = Start(call, replaces)
        self.outcomes[session.id].pop(call.key, None)
        self.starts[session.id][call.key] = start
        try:
            await self.save(session.id)
        except AgentError as error:
            self._withdraw(session.id, call)
            raise RuntimeError(f"{call.tool} did not run: {error}") from None
        except asyncio.CancelledError:
            self._withdraw(session.id, call)
            raise
        finally:
            del self.starts[session.id][call.key]
        stage = self.stages.get(session.id)
        if stage is None or stage.session is not session:
            self._withdraw(session.id, call)
            raise RuntimeError(f"{call.tool} did not run: its turn has ended.")
        saved = read_section(session.records).find(call.key)
        if saved is None or saved.owner != self.id or not saved.is_open:
            raise StartedElsewhere
        task = asyncio.create_task(self._run_started(session, function, call))
        self.running[call.key] = task
        task.add_done_callback(lambda _: self._end_call(call.key))
        task.add_done_callback(retrieve_error)

    def _end_call(self, key: str) -> None:
        self.running.pop(key, None)
        self.adopted.discard(key)

    def _withdraw(self, session_id: str, call: Call) -> None:
        """Remove the start of a call that did not run: the store may have saved it."""
        self.outcomes[session_id][call.key] = Outcome("removed", owner=call.owner)
        self.watch(session_id)

    async def _run_started(self, session: Session, function: EffectFunction, call: Call) -> Any:
        failure: BaseException | None = None
        result: Any = None
        try:
            result = await self._within_time(function.run(_effect(session, call), call.arguments))
            outcome = Outcome("done", _as_json(result))
        except Rejected as error:
            failure = error
            outcome = Outcome("removed", owner=call.owner)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the model gets the error)
            failure = error
            log.warning("effect %s: %s", call.tool, describe(error) + place_of(error))
            outcome = await self.resolve(session.id, function, call)
        self.outcomes[session.id][call.key] = replace(outcome, wanted=call.key in self.adopted)
        try:
            await self.save(session.id)
        except AgentError:  # the commit of the turn, or the worker, saves the outcome
            self.watch(session.id)
        if failure is None:
            return result
        if outcome.status == "unknown":
            raise RuntimeError(unknown(call)) from None
        if outcome.status == "done":
            return outcome.result
        raise failure

    async def _within_time(self, work: Awaitable[Any]) -> Any:
        """Return the result of an owner's function.

        Raises its error, TimeoutError, or Interrupted for its own CancelledError.
        """
        try:
            async with asyncio.timeout(self.settings.effect_timeout_seconds):
                return await work
        except asyncio.CancelledError as error:
            if is_cancelled():  # the process ends
                raise
            message = "The function was cancelled."
            raise Interrupted(message).with_traceback(error.__traceback__) from error

    async def resolve(self, session_id: str, function: EffectFunction, call: Call) -> Outcome:
        """Return the outcome of a started call, as the owner's `reconcile` reports it."""
        if function.reconcile:
            try:
                result = await self._within_time(function.reconcile(call.key))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the outcome stays unknown)
                log.warning("reconcile of %s: %s", call.tool, describe(error) + place_of(error))
            else:
                if result is None:
                    return Outcome("removed", owner=call.owner)
                return Outcome("done", _as_json(result))
        self.report(session_id, call, "its outcome is unknown")
        return Outcome("unknown", owner=call.owner)

    def report(self, session_id: str, call: Call, problem: str) -> None:
        """Log a problem of a call, once in this process."""
        if call.key not in self._reported:
            self._reported.add(call.key)
            text = "session %s: effect %s of %s: %s; see `effects list`"
            log.error(text, session_id, call.key, call.tool, problem)

    # Scheduled calls -------------------------------------------------------------------------

    def watch(self, session_id: str) -> None:
        """Run the scheduled calls of a session and save its outcomes, in a task."""
        if self._closing.is_set():
            return
        if session_id in self.workers:
            self._again.add(session_id)
            return
        # The context of a turn must not reach the calls.
        task = asyncio.create_task(self._work(session_id), context=Context())
        self.workers[session_id] = task
        task.add_done_callback(lambda _: self._end_worker(session_id))

    def _end_worker(self, session_id: str) -> None:
        del self.workers[session_id]
        if session_id in self._again:
            self._again.discard(session_id)
            self.watch(session_id)

    async def _work(self, session_id: str) -> None:
        failures = 0
        pause: float | None = 0
        while pause is not None:
            self._is_working.add(session_id)
            try:
                pause = await self.step(session_id)
                failures = 0
            except AgentError as error:
                failures += 1
                pause = pause_after(failures) if failures <= MAX_PAUSES else None
                log.warning("session %s: effects wait: %s %s", session_id, error.type, error.detail)
            except Exception as error:  # noqa: BLE001 (other sessions continue)
                log_unexpected(error)
                pause = None
            finally:
                self._is_working.discard(session_id)
            if pause and await _is_set_within(self._closing, pause):
                return

    async def step(self, session_id: str) -> float | None:
        """Do the next piece of work; return the seconds to wait after it, or None at the end.

        Raises AgentError.
        """
        snapshot = await self._load(session_id)
        if snapshot is None:  # the session has ended
            self.outcomes.pop(session_id, None)
            await self._finish(session_id)
            return None
        section = read_section(snapshot["app_data"].get("records", {}))
        self._merge(session_id, section)
        outcomes = self.outcomes.get(session_id)
        waiting = section.scheduled
        now = time.time()
        is_foreign = section.is_of_other(self.id, now)
        if outcomes and (is_foreign or not waiting):
            await self.save(session_id)
            return 0
        if not waiting:
            await self._finish(session_id)
            return None
        if is_foreign:
            return min(section.until + SKEW_SECONDS - now, MAX_PAUSE)
        if section.owner != self.id or section.until < now + self.settings.effect_timeout_seconds:
            if self.index:
                await self.index.add(session_id, 2 * self.settings.effect_timeout_seconds)
            self._claims.add(session_id)
            try:
                await self.save(session_id)
            finally:
                self._claims.remove(session_id)
            return 0
        pause = await self._try(session_id, snapshot["app_data"]["actor"], waiting[0])
        if pause and self.outcomes.get(session_id):  # the claim may end during the pause
            await self.save(session_id)
        return pause

    async def _try(self, session_id: str, actor: str | None, call: Call) -> float:
        function = FUNCTIONS.get(call.tool)
        problem = "no function with `@after_commit` has this name"
        if function and function.kind == call.kind:
            try:
                function.parse(call.arguments)
                problem = ""
            except ValueError:
                problem = "the parameters of the function have changed"
        if function is None or problem:
            self.report(session_id, call, f"{problem}, so it waits")
            return MAX_PAUSE
        effect = Effect(call.key, session_id, actor, call.turn)
        tried = call.tried or time.time()
        try:
            result = await self._within_time(function.run(effect, call.arguments))
            outcome = Outcome("done", _as_json(result))
        except Rejected as error:
            outcome = Outcome("failed", str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (retried)
            reason = describe(error)
            log.warning("effect %s %s: %s", call.tool, call.key, reason + place_of(error))
            age = time.time() - tried
            if age < self.settings.effect_retry_seconds:
                if not call.tried:  # the retry period also counts for other processes
                    self.outcomes[session_id][call.key] = Outcome("scheduled", tried=tried)
                return min(max(FIRST_PAUSE, age / 2), MAX_PAUSE) * random.uniform(0.5, 1)
            outcome = Outcome("failed", reason)
        if outcome.status == "failed":
            log.error("session %s: effect %s of %s failed", session_id, call.key, call.tool)
        self.outcomes[session_id][call.key] = outcome
        return 0

    async def has_open_calls(self, session_id: str) -> bool:
        """Whether a session has scheduled calls. Raises AgentError."""
        snapshot = await self._load(session_id)
        return bool(snapshot and open_calls(snapshot["app_data"].get("records", {})))

    async def _load(self, session_id: str) -> Any:
        """Return the snapshot of a session, or None."""
        stored = await self.sessions.store.load(session_id)
        return json.loads(stored.snapshot) if stored and stored.snapshot else None

    async def _finish(self, session_id: str) -> None:
        self._owned.discard(session_id)
        if self.index and session_id not in self.stages:
            await self.index.remove(session_id)

    # The process -----------------------------------------------------------------------------

    def begin(self, stage: Stage) -> None:
        """Note the stage of a running turn."""
        self.sessions = stage.session.sessions
        self.stages[stage.session.id] = stage

    def end(self, turn: Turn) -> None:
        """Forget the stage of a turn, and continue the work of its session."""
        id = turn.session_id
        stage = self.stages.get(id)
        if stage and stage.turn is turn:
            del self.stages[id]
            self._ids.pop(id, None)
            if open_calls(stage.session.records) or self.outcomes.get(id):
                self.watch(id)
        for memory in (self.outcomes, self.starts):
            if id in memory and not memory[id]:
                del memory[id]

    async def close(self, seconds: float) -> None:
        """Finish running calls within `seconds`; leave the others to another process."""
        tasks = [*self.workers.values(), *self.running.values()]
        self._closing.set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
        unsaved = {id for id, outcomes in self.outcomes.items() if outcomes}
        for id in unsaved | self._owned:
            await _log_failure(self.save(id))


def kept_of(turn: Turn | None) -> Any:
    """Return the data that a turn keeps.

    `scheduled` are its scheduled calls, `used` the keys of the calls of `once` that this try has
    started, or whose outcomes it has got.
    """
    kept: Any = turn.kept.get(NAME, {}) if turn else {}
    return {"scheduled": [], "used": [], **kept}


def identity_of(stage: Stage) -> str:
    """Return the turn's idempotency key or number: a repeated turn has the same identity."""
    return f"turn {stage.turn.number}" if stage.key is None else f"key {stage.key}"


def open_calls(records: dict[str, Any]) -> int:
    """Return the number of scheduled calls in the records of a session."""
    return int(records.get(NAME, {}).get("open", 0))


def pause_after(failures: int) -> float:
    """Return the seconds to wait after a number of failures."""
    return float(min(FIRST_PAUSE * 2 ** (failures - 1), MAX_PAUSE) * random.uniform(0.5, 1))


def unknown(call: Call) -> str:
    """Return the message for the model about an unknown outcome."""
    return (
        f"It is unknown whether an earlier call of {call.tool} with these arguments had its effect,"
        f" so it does not run again. A person must settle effect {call.key}."
    )


def _effect(session: Session, call: Call) -> Effect:
    return Effect(call.key, session.id, session.actor, call.turn)


def _as_json(result: Any) -> Any:
    """Return a result as JSON."""
    from pydantic_core import to_jsonable_python

    try:
        return json.loads(json.dumps(to_jsonable_python(result), allow_nan=False))
    except (ValueError, RecursionError):
        return NOT_JSON


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def _log_failure(work: Awaitable[None]) -> None:
    try:
        await work
    except AgentError as error:
        log.warning("effects were not saved: %s %s", error.type, error.detail)
