"""The messages of a turn, in a list that is quick to copy."""

from copy import deepcopy
from typing import Any


class Messages(list[Any]):
    """Messages; the SDK copies them all, more than once, for each call of the model.

    A copy shares nothing that can change with the original, as that of `copy.deepcopy`.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Messages":
        return Messages(map(_copied, self))


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _copied(one) for name, one in value.items()}
    if kind is list:
        return [_copied(one) for one in value]
    return value if kind in {str, int, float, bool, bytes, type(None)} else deepcopy(value)
