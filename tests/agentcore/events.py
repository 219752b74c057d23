"""The operations on events: what was said, in sessions of actors."""

from typing import Any

from tests.agentcore.extraction import check_variables, extract
from tests.agentcore.paging import page
from tests.agentcore.search import matches
from tests.agentcore.state import (
    DAY,
    EMPTY_SESSION,
    Event,
    Given,
    Memory,
    ServiceError,
    Session,
    State,
    at,
    invalid,
)

MAIN = "main"


class Events(State):
    def create_event(self, given: Given) -> Given:
        memory = self.find(given)
        repeated = self.once(memory, "CreateEvent", given)
        if repeated is not None:
            return repeated
        check_variables(memory, given)
        now = self.clock.now()
        session = given.get("sessionId") or self.unique(32)
        branch = given.get("branch", {"name": MAIN})
        root = branch.get("rootEventId")
        if root is not None:
            self._check_root(memory, given["actorId"], session, root)
        time = given["eventTimestamp"]
        milliseconds = max(0, round(time.timestamp() * 1000))
        event = Event(
            # Within a millisecond the order is the service's own, as there.
            id=f"{milliseconds:019d}#{self.unique(8)}",
            actor=given["actorId"],
            session=session,
            time=time,
            payload=given["payload"],
            branch=branch,
            metadata=given.get("metadata", {}),
            expires=now + memory.description["eventExpiryDuration"] * DAY,
        )
        memory.events[event.id] = event
        key = (event.actor, event.session)
        memory.sessions.setdefault(key, Session(*key, created=now, emptied=now))
        extract(self, memory, event, given)
        return self.remember(memory, "CreateEvent", given, {"event": described(memory, event)})

    def list_events(self, given: Given) -> Given:
        """Newest first; metadata is filtered after a page was cut, so one may be empty."""
        memory = self.find(given)
        wanted = given.get("filter", {})
        events = self._events(memory, given)
        if "branch" in wanted:
            upto = _branches(events, wanted["branch"])
            events = [
                event
                for event in events
                if event.branch["name"] in upto and event.id <= upto[event.branch["name"]]
            ]
        found, more = page(given, ((event.id, event) for event in events), newest_first=True)
        filters = wanted.get("eventMetadata", [])
        shown = [
            described(memory, event, given.get("includePayloads", True))
            for event in found
            if matches(filters, event.metadata)
        ]
        return {"events": shown, **more}

    def get_event(self, given: Given) -> Given:
        memory = self.find(given)
        return {"event": described(memory, self._event(memory, given))}

    def delete_event(self, given: Given) -> Given:
        """The event goes; what was extracted from it stays, and what is still to come comes."""
        memory = self.find(given)
        event = self._event(memory, given)
        del memory.events[event.id]
        memory.sessions[event.actor, event.session].emptied = self.clock.now()
        return {"eventId": event.id}

    def list_sessions(self, given: Given) -> Given:
        memory = self.find(given)
        has_events = given.get("filter", {}).get("eventFilter") == "HAS_EVENTS"
        sessions = [
            one for one in self._sessions(memory, has_events) if one.actor == given["actorId"]
        ]
        rows = ((f"{round(one.created * 1000):019d}#{one.id}", one) for one in sessions)
        found, more = page(given, rows, newest_first=True)
        shown = [
            {"sessionId": one.id, "actorId": one.actor, "createdAt": at(one.created)}
            for one in found
        ]
        return {"sessionSummaries": shown, **more}

    def list_actors(self, given: Given) -> Given:
        memory = self.find(given)
        actors = {session.actor for session in self._sessions(memory, False)}
        found, more = page(given, ((actor, actor) for actor in actors))
        return {"actorSummaries": [{"actorId": actor} for actor in found], **more}

    def _events(self, memory: Memory, given: Given) -> list[Event]:
        now, key = self.clock.now(), (given["actorId"], given["sessionId"])
        return [
            event
            for event in memory.events.values()
            if (event.actor, event.session) == key and event.expires > now
        ]

    def _event(self, memory: Memory, given: Given) -> Event:
        for event in self._events(memory, given):
            if event.id == given["eventId"]:
                return event
        raise ServiceError("ResourceNotFoundException", f"Event not found: {given['eventId']}")

    def _sessions(self, memory: Memory, has_events: bool) -> list[Session]:
        now = self.clock.now()
        filled = {
            (event.actor, event.session) for event in memory.events.values() if event.expires > now
        }
        return [
            session
            for key, session in memory.sessions.items()
            if key in filled or (not has_events and session.emptied + EMPTY_SESSION > now)
        ]

    def _check_root(self, memory: Memory, actor: str, session: str, root: str) -> None:
        event = memory.events.get(root)
        if event is None:
            raise ServiceError("ResourceNotFoundException", f"Event not found: {root}")
        if (event.actor, event.session) != (actor, session):
            raise invalid("branch.rootEventId", "Another session's event", "EventInOtherSession")


def described(memory: Memory, event: Event, with_payload: bool = True) -> Given:
    shown: dict[str, Any] = {
        "memoryId": memory.id,
        "actorId": event.actor,
        "sessionId": event.session,
        "eventId": event.id,
        "eventTimestamp": event.time,
        "branch": event.branch,
    }
    if with_payload:
        shown["payload"] = event.payload
    if event.metadata:
        shown["metadata"] = event.metadata
    return shown


def _branches(events: list[Event], wanted: Given) -> dict[str, str]:
    """The branches that a filter means, and the last event of each that belongs to it."""
    upto, name = {wanted["name"]: "~"}, wanted["name"]
    by_id = {event.id: event for event in events}
    while wanted.get("includeParentBranches"):
        roots = [e.branch["rootEventId"] for e in events if _starts(e, name)]
        root = by_id.get(min(roots)) if roots else None
        if root is None or root.branch["name"] in upto:
            break
        name = root.branch["name"]
        upto[name] = root.id
    return upto


def _starts(event: Event, branch: str) -> bool:
    return bool(event.branch["name"] == branch and "rootEventId" in event.branch)
