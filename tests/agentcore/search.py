"""Which records a namespace, a filter or a query means.

The score of a record is the cosine of two sets of words, its own and the query's: 1 for the same
words, 0 for none in common, whatever else is stored. As the service does, every record in the
namespace is a result, however low its score: a threshold is the client's.
"""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from tests.agentcore.state import Given, Record, invalid

WORD = re.compile(r"\w+")
STOP_WORDS = frozenset(
    WORD.findall(
        "a an and are as at be by did do does for from had has have i in is it me my of on or our "
        "s that the their they this to was we were what which who will with you your"
    )
)


def words(text: str) -> frozenset[str]:
    """The words that count in a text; all of them if none does."""
    found = {_singular(word) for word in WORD.findall(text.casefold())}
    return frozenset(found - STOP_WORDS or found)


def score(query: frozenset[str], record: Record) -> float:
    if not query or not record.words:
        return 0.0
    common = len(query & record.words)
    return min(1.0, common / math.sqrt(len(query) * len(record.words)))


def normalised(namespace: str) -> str:
    """A namespace as the service keeps it: /a/b/"""
    inner = namespace.strip("/")
    return f"/{inner}/" if inner else "/"


def in_namespace(given: Given) -> Callable[[Record], bool]:
    """Whether a record is where a request looks: in a namespace, or in a path and below it."""
    exact, path = given.get("namespace"), given.get("namespacePath")
    if exact is not None and path is None:
        wanted = normalised(exact)
        return lambda record: record.namespace == wanted
    if path is not None and exact is None:
        above = normalised(path)
        return lambda record: record.namespace.startswith(above)
    raise invalid("namespace", "Exactly one of namespace and namespacePath must be given")


def matches(filters: list[Given], metadata: Given) -> bool:
    """Whether metadata passes all filters."""
    return all(_passes(one, metadata) for one in filters)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EQUALS_TO": operator.eq,
    "BEFORE": operator.lt,
    "AFTER": operator.gt,
    "GREATER_THAN": operator.gt,
    "GREATER_THAN_OR_EQUALS": operator.ge,
    "LESS_THAN": operator.lt,
    "LESS_THAN_OR_EQUALS": operator.le,
    "CONTAINS": lambda own, wanted: wanted in own,
}


def _passes(one: Given, metadata: Given) -> bool:
    own = metadata.get(one["left"]["metadataKey"])
    if one["operator"] in ("EXISTS", "NOT_EXISTS"):
        return bool((own is None) == (one["operator"] == "NOT_EXISTS"))
    if "right" not in one:
        raise invalid("right", f"{one['operator']} needs a value")
    if own is None:
        return False
    ((kind, value),) = own.items()
    ((wanted_kind, wanted),) = one["right"]["metadataValue"].items()
    if kind != wanted_kind and one["operator"] != "CONTAINS":
        return False
    try:
        return bool(COMPARISONS[one["operator"]](value, wanted))
    except TypeError:
        return False


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
