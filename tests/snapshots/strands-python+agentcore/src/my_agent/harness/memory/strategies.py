"""The strategies of an AgentCore memory, and the namespaces to which they write."""

import re
from collections.abc import Collection
from typing import Any

from .namespaces import PLACEHOLDER

STRATEGY = "{memoryStrategyId}"  # filled in before the others, from the memory resource


def are_whole(templates: Collection[str] | None) -> bool:
    """Whether templates can be searched without a description of the memory resource."""
    return templates is not None and not any(STRATEGY in template for template in templates)


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
