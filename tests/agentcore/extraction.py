"""What the service remembers of an event: each text of it, once for every strategy.

No model decides what is worth it: a USER's or ASSISTANT's text becomes a record as it is.
"""

import json
import re
from typing import Any

from tests.agentcore.search import normalised, words
from tests.agentcore.state import DAY, Event, Given, Memory, Record, State, invalid

PLACEHOLDER = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")
BUILT_IN = frozenset({"actorId", "sessionId", "memoryStrategyId"})
LONGEST_RECORD = 16_000


def check_variables(memory: Memory, given: Given) -> None:
    """Refuse a value that the memory's own rule for the key does not allow."""
    variables = given.get("extractionConfig", {}).get("namespaceVariables", {})
    for entry in memory.description.get("namespaceKeys", []):
        key, rules = entry["key"], entry.get("validation", {})
        if key not in variables:
            continue
        allowed, rule = rules.get("allowedValues"), rules.get("regexPattern")
        value = variables[key]
        if (allowed and value not in allowed) or (rule and not re.fullmatch(rule, value)):
            path = f"extractionConfig.namespaceVariables.{key}"
            raise invalid(path, "The value breaks the rules of the namespace key")


def extract(state: State, memory: Memory, event: Event, given: Given) -> None:
    """Make the records of an event, which are to be seen when the delay is over.

    A namespace with a variable that has no value yields nothing and no error, as at AWS.
    """
    if given.get("extractionMode") == "SKIP":
        state.counts["skipped"] += 1
        return
    variables = given.get("extractionConfig", {}).get("namespaceVariables", {})
    texts = _texts(event)
    for strategy in memory.strategies:
        if strategy.get("configuration", {}).get("type") == "SELF_MANAGED":
            continue
        own = {
            "actorId": event.actor,
            "sessionId": event.session,
            "memoryStrategyId": strategy["strategyId"],
        }
        for template in strategy["namespaceTemplates"]:
            namespace = _resolved(template, {**variables, **own})
            if namespace is None:
                state.counts["unresolved"] += 1
                continue
            for text in texts:
                _keep(state, memory, event, strategy, normalised(namespace), text)


def _keep(
    state: State, memory: Memory, event: Event, strategy: Given, namespace: str, text: str
) -> None:
    known = (strategy["strategyId"], namespace, text)
    if any((one.strategy, one.namespace, one.text) == known for one in memory.records.values()):
        state.counts["duplicate"] += 1
        return
    state.counts["extracted"] += 1
    indexed = [it["key"] for it in memory.description.get("indexedKeys", [])]
    now, days = state.clock.now(), strategy.get("recordExpiryDurationDays")
    record = Record(
        id=f"mem-{state.unique(36)}",
        text=text,
        strategy=strategy["strategyId"],
        namespace=namespace,
        created=now,
        visible=now + state.extraction_delay,
        timestamp=event.time,
        metadata={key: value for key, value in event.metadata.items() if key in indexed},
        days=days,
        expires=now + days * DAY if days else float("inf"),
        words=words(text),
    )
    memory.records[record.id] = record


def _resolved(template: str, values: dict[str, str]) -> str | None:
    if not set(PLACEHOLDER.findall(template)) <= set(values):
        return None
    return PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _texts(event: Event) -> list[str]:
    found = []
    for item in event.payload:
        said = item.get("conversational")
        if said and said["role"] in ("USER", "ASSISTANT"):
            found.append(_unwrapped(said["content"]["text"]).strip()[:LONGEST_RECORD])
    return [text for text in found if text]


def _unwrapped(text: str) -> str:
    """The text of a message that AgentCoreMemorySessionManager has stored as JSON."""
    try:
        wrapped: Any = json.loads(text)
        blocks = wrapped["message"]["content"]
        return "\n".join(block["text"] for block in blocks if "text" in block)
    except (ValueError, TypeError, KeyError):
        return text
