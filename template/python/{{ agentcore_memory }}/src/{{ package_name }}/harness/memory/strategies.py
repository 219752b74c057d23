"""Match namespace templates with the strategies of an AgentCore memory."""

import re
from collections.abc import Collection
from typing import Any

from .namespaces import PLACEHOLDER, STRATEGY

# The template of a strategy that names no namespace.
DEFAULT_TEMPLATE = f"/strategies/{STRATEGY}/actors/{{actorId}}"


def are_whole(templates: Collection[str] | None) -> bool:
    """Whether searches by the templates do not need the memory resource."""
    return templates is not None and not any(STRATEGY in template for template in templates)


def of_strategies(template: str, memory: dict[str, Any]) -> list[str]:
    """Return the template filled in for each strategy of a memory that writes to it.

    A template without {memoryStrategyId} is returned unchanged.
    """
    if STRATEGY not in template:
        return [template]
    paths = []
    for strategy in memory.get("strategies", []):
        path = template.replace(STRATEGY, strategy["strategyId"])
        written = written_templates({"strategies": [strategy]})
        if not written or any(is_written(path, pattern) for pattern in written):
            paths.append(path)
    return paths


def is_written(template: str, written: str) -> bool:
    """Whether a search by `template` can find records that a strategy writes to `written`."""
    searched, target = (path.strip("/").split("/") for path in (template, written))
    if searched[-1] == "*":
        searched, target = searched[:-1], target[: len(searched) - 1]
    return len(searched) == len(target) and all(map(_can_equal, searched, target))


def _can_equal(segment: str, written: str) -> bool:
    pattern = "[^/{}]+".join(map(re.escape, PLACEHOLDER.split(written)[::2]))
    return segment == written or re.fullmatch(pattern, segment) is not None


def written_templates(memory: dict[str, Any]) -> list[str]:
    """Return the templates that a memory's strategies write to, with the files' placeholders."""
    return [
        template.replace(STRATEGY, strategy["strategyId"])
        # The service requires lower-case keys.
        .replace("{projectid}", "{projectId}")
        for strategy in memory.get("strategies", [])
        for part in _writing_parts(strategy)
        for template in part.get("namespaceTemplates") or part.get("namespaces") or []
    ]


def _writing_parts(strategy: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a strategy and its reflection, which has separate namespaces."""
    reflection = strategy.get("configuration", {}).get("reflection", {})
    override = reflection.get("customReflectionConfiguration", {}).get("episodicReflectionOverride")
    return [strategy, reflection.get("episodicReflectionConfiguration") or override or {}]
