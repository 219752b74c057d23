"""Whose memory it is, and where in a memory that lies: templates of namespaces, filled in."""

import re
from dataclasses import dataclass
from hashlib import sha256

PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Who:
    """Who talks, and in which session."""

    actor: str
    session_id: str
    project_id: str | None = None


@dataclass(frozen=True)
class Place:
    """A namespace: one exactly, or with all that lies below it."""

    path: str  # such as /users/alice/
    is_subtree: bool = False

    @property
    def wire(self) -> dict[str, str]:
        """The parameter that names it to AgentCore."""
        return {"namespacePath" if self.is_subtree else "namespace": self.path}

    def holds(self, path: str) -> bool:
        """Whether a record of that namespace is here."""
        path = f"/{path.strip('/')}/"
        return path.startswith(self.path) if self.is_subtree else path == self.path


def resolve(template: str, who: Who) -> Place:
    """The place that a template means for somebody; `/*` at its end means all below.

    What is filled in is not looked at again. Raises ValueError, which names what is wrong, and so
    also for values with which the places of two people could meet.
    """
    values = {
        "actorId": who.actor,
        "sessionId": event_session(who.session_id),
        "projectId": who.project_id,
    }
    for segment in template.split("/"):
        if "{actorId}" in segment and len(PLACEHOLDER.findall(segment)) > 1:
            raise ValueError(f"{template}: {{actorId}} needs a segment without other placeholders")

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            return found[0]
        value = values[name]
        if not isinstance(value, str) or not value:
            raise ValueError(f"{template}: {{{name}}} has no value")
        if re.search("[/*]", value):
            raise ValueError(f"{template}: the value of {{{name}}} has a / or a *")
        return value

    is_subtree = template.endswith("/*")
    path = PLACEHOLDER.sub(value_of, template.removesuffix("*") if is_subtree else template)
    if found := re.search(r"\{\w*\}?|[}*]", path):
        raise ValueError(f"{template}: {found[0]} is left over")
    if not path.strip("/"):
        raise ValueError(f"{template}: it names no namespace")
    return Place(f"/{path.strip('/')}/", is_subtree)


def event_session(session_id: str) -> str:
    """The name of a session in AgentCore Memory, which has at most 100 characters."""
    if len(session_id) <= 100:
        return session_id
    return f"{session_id[:60]}-{sha256(session_id.encode()).hexdigest()[:32]}"
