"""Namespace templates, and the actor, session and project that fill them in."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

PLACEHOLDER = re.compile(r"\{(\w+)\}")
STRATEGY = "{memoryStrategyId}"  # filled in before the others, from the memory resource


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


def are_whole(templates: Collection[str] | None) -> bool:
    """Whether templates can be searched without a description of the memory resource."""
    return templates is not None and not any(STRATEGY in template for template in templates)


def in_file(template: str) -> str:
    """Return a template for a local memory, which has one strategy."""
    return template.replace(STRATEGY, "local")


def of_strategies(template: str, memory: dict[str, Any]) -> list[str]:
    """Return a template once for each strategy of a memory that writes to it.

    Without {memoryStrategyId} it is returned as it is.
    """
    if STRATEGY not in template:
        return [template]
    found = []
    for strategy in memory.get("strategies", []):
        filled = template.replace(STRATEGY, strategy["strategyId"])
        written = written_templates({"strategies": [strategy]})
        if not written or any(is_written(filled, pattern) for pattern in written):
            found.append(filled)
    return found


def is_written(template: str, written: str) -> bool:
    """Whether a search by `template` can find records that `written` places."""
    asked, wrote = (path.strip("/").split("/") for path in (template, written))
    if asked[-1] == "*":
        asked, wrote = asked[:-1], wrote[: len(asked) - 1]
    return len(asked) == len(wrote) and all(map(_can_equal, asked, wrote))


def _can_equal(segment: str, written: str) -> bool:
    pattern = "[^/{}]+".join(map(re.escape, PLACEHOLDER.split(written)[::2]))
    return segment == written or re.fullmatch(pattern, segment) is not None


def written_templates(memory: dict[str, Any]) -> list[str]:
    """Return the templates to which the strategies of a memory write, as the files spell them."""
    return [
        template.replace(STRATEGY, strategy["strategyId"])
        # The service allows keys in lower case only.
        .replace("{projectid}", "{projectId}")
        for strategy in memory.get("strategies", [])
        for part in _writing_parts(strategy)
        for template in part.get("namespaceTemplates") or part.get("namespaces") or []
    ]


def _writing_parts(strategy: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a strategy and its reflection, which has namespaces of its own."""
    reflection = strategy.get("configuration", {}).get("reflection", {})
    override = reflection.get("customReflectionConfiguration", {}).get("episodicReflectionOverride")
    return [strategy, reflection.get("episodicReflectionConfiguration") or override or {}]
