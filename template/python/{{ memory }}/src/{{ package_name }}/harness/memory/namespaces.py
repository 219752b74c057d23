"""Resolve namespace templates for an actor, session and project."""

import re
from dataclasses import dataclass
from hashlib import sha256

PLACEHOLDER = re.compile(r"\{(\w+)\}")
STRATEGY = "{memoryStrategyId}"
LOCAL = "local"  # the only strategy of a file


@dataclass(frozen=True)
class Who:
    """The actor, session and project of a turn."""

    actor: str
    session_id: str
    project_id: str | None = None


@dataclass(frozen=True)
class Namespace:
    """A namespace; if `is_subtree`, it includes all namespaces below."""

    path: str  # such as /users/alice/
    is_subtree: bool = False

    @property
    def parameter(self) -> dict[str, str]:
        """The request parameter of AgentCore."""
        return {"namespacePath" if self.is_subtree else "namespace": self.path}

    def holds(self, path: str) -> bool:
        """Whether a record at `path` is in the namespace."""
        path = normalised(path)
        return path.startswith(self.path) if self.is_subtree else path == self.path


ROOT = Namespace("/", is_subtree=True)


def normalised(path: str) -> str:
    """Return a path with one slash at each end."""
    return f"/{path.strip('/')}/"


def resolve(template: str, identity: Who) -> Namespace:
    """Fill in the placeholders of a template; a final `/*` includes all namespaces below.

    Values are not expanded again. Raises ValueError for an invalid
    template, and if the namespaces of two actors could overlap.
    """
    values = {
        "actorId": identity.actor,
        "sessionId": event_session(identity.session_id),
        "projectId": identity.project_id,
        "memoryStrategyId": LOCAL,  # services replace it earlier
    }
    for segment in template.split("/"):
        if "{actorId}" in segment and len(PLACEHOLDER.findall(segment)) > 1:
            raise ValueError(f"{template}: {{actorId}} must be the only placeholder of its segment")

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            return match[0]
        value = values[name]
        if not value:
            raise ValueError(f"{template}: {{{name}}} has no value")
        if re.search("[/*]", value):
            raise ValueError(f"{template}: the value of {{{name}}} contains / or *")
        return value

    is_subtree = template.endswith("/*")
    path = PLACEHOLDER.sub(value_of, template.removesuffix("*") if is_subtree else template)
    if rest := re.search(r"\{\w*\}?|[}*]", path):
        raise ValueError(f"{template}: {rest[0]} is an unknown placeholder")
    if not path.strip("/"):
        raise ValueError(f"{template}: the namespace is empty")
    return Namespace(normalised(path), is_subtree)


def event_session(session_id: str) -> str:
    """Return the session's name in AgentCore Memory: at most 100 letters, digits, _ and -."""
    if re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]{0,99}", session_id):
        return session_id
    head = re.sub("^[_-]", "0", re.sub("[^A-Za-z0-9_-]", "-", session_id[:60]))
    return f"{head}-{sha256(session_id.encode()).hexdigest()[:32]}"


def default_template(lifetime: str) -> str:
    """Return the namespace template for a collection without `retrieval_config`."""
    return "/users/{actorId}" if lifetime == "user" else "/projects/{projectId}"
