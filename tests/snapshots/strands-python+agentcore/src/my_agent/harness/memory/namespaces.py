"""Namespace templates, and the actor, session and project that fill them in."""

import re
from dataclasses import dataclass
from hashlib import sha256

PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Who:
    """The actor, session and project of a turn."""

    actor: str
    session_id: str
    project_id: str | None = None


@dataclass(frozen=True)
class Namespace:
    """A namespace, alone or with all namespaces below."""

    path: str  # such as /users/alice/
    is_subtree: bool = False

    @property
    def parameter(self) -> dict[str, str]:
        """The parameter for calls of AgentCore."""
        return {"namespacePath" if self.is_subtree else "namespace": self.path}

    def holds(self, path: str) -> bool:
        """Whether a record at `path` is in the namespace."""
        path = f"/{path.strip('/')}/"
        return path.startswith(self.path) if self.is_subtree else path == self.path


def resolve(template: str, who: Who) -> Namespace:
    """Fill in a template, in one pass; a final `/*` includes all namespaces below.

    Raises ValueError with the reason, also if the namespaces of two actors could overlap.
    """
    values = {
        "actorId": who.actor,
        "sessionId": event_session(who.session_id),
        "projectId": who.project_id,
        "memoryStrategyId": "local",  # of a file: a service fills it in before
    }
    for segment in template.split("/"):
        if "{actorId}" in segment and len(PLACEHOLDER.findall(segment)) > 1:
            raise ValueError(f"{template}: {{actorId}} needs a segment without other placeholders")

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            return match[0]
        value = values[name]
        if not value:
            raise ValueError(f"{template}: {{{name}}} has no value")
        if re.search("[/*]", value):
            raise ValueError(f"{template}: the value of {{{name}}} has a / or a *")
        return value

    is_subtree = template.endswith("/*")
    path = PLACEHOLDER.sub(value_of, template.removesuffix("*") if is_subtree else template)
    if left := re.search(r"\{\w*\}?|[}*]", path):
        raise ValueError(f"{template}: {left[0]} is left over")
    if not path.strip("/"):
        raise ValueError(f"{template}: it names no namespace")
    return Namespace(f"/{path.strip('/')}/", is_subtree)


def event_session(session_id: str) -> str:
    """Return the name of a session in AgentCore Memory, which allows 100 characters."""
    if len(session_id) <= 100:
        return session_id
    return f"{session_id[:60]}-{sha256(session_id.encode()).hexdigest()[:32]}"


def default_template(lifetime: str) -> str:
    """Return the namespace of a collection whose file names none."""
    return "/users/{actorId}" if lifetime == "user" else "/projects/{projectId}"
