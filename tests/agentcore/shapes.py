"""What botocore's service models say of a value: read from JSON, written to JSON, and checked."""

import base64
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

# The service is not written in Python: its \s is ASCII's.
pattern = cache(lambda text: re.compile(text, re.ASCII))

# Where a value may lack what the model requires: (shape, member).
Omissions = frozenset[tuple[str, str]]


class Problem(NamedTuple):
    path: str
    message: str


class Check:
    """One pass over one value: `read` turns JSON into Python, `write` Python into JSON.

    `problems` are the rules that it breaks; `unknown` the fields that no model knows, which are
    left out; `is_unreadable` is set when a value has another type than the model's.
    """

    def __init__(self, omissions: Omissions = frozenset()) -> None:
        self.problems: list[Problem] = []
        self.unknown: list[str] = []
        self.is_unreadable = False
        self._omissions = omissions
        self._writes = False

    def read(self, shape: Any, value: Any, path: str = "") -> Any:
        self._writes = False
        return self._visit(shape, value, path)

    def write(self, shape: Any, value: Any, path: str = "") -> Any:
        self._writes = True
        return self._visit(shape, value, path)

    def _visit(self, shape: Any, value: Any, path: str) -> Any:
        if shape.metadata.get("document"):
            return value
        found = getattr(self, f"_{shape.type_name}")(shape, value, path)
        if "enum" in shape.metadata and value not in shape.metadata["enum"]:
            self._broken(path, f"enum value set: [{', '.join(shape.metadata['enum'])}]")
        return found

    def _structure(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._unreadable(path, "a structure", value)
        given = {name: item for name, item in value.items() if item is not None}
        self.unknown += [_under(path, name) for name in given if name not in shape.members]
        for name in shape.required_members:
            if name not in given and (shape.name, name) not in self._omissions:
                self.problems.append(Problem(_under(path, name), "Member must not be null"))
        known = [name for name in shape.members if name in given]
        if shape.is_tagged_union and len(known) != 1:
            self._broken(path, f"exactly one of [{', '.join(shape.members)}] set")
        return {
            name: self._visit(shape.members[name], given[name], _under(path, name))
            for name in known
        }

    def _list(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            return self._unreadable(path, "a list", value)
        self._within(shape, len(value), path, "length")
        return [self._visit(shape.member, item, f"{path}[{at}]") for at, item in enumerate(value)]

    def _map(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._unreadable(path, "a map", value)
        self._within(shape, len(value), path, "length")
        return {
            self._visit(shape.key, key, _under(path, f"{key} (key)")): self._visit(
                shape.value, item, _under(path, key)
            )
            for key, item in value.items()
        }

    def _string(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, str):
            return self._unreadable(path, "a string", value)
        self._within(shape, len(value), path, "length")
        rule = shape.metadata.get("pattern")
        if rule and not pattern(rule).fullmatch(value):
            self._broken(path, f"regular expression pattern: {rule}")
        return value

    def _integer(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return self._unreadable(path, "an integer", value)
        self._within(shape, value, path, "value")
        return value

    _long = _integer

    def _double(self, shape: Any, value: Any, path: str) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return self._unreadable(path, "a number", value)
        self._within(shape, value, path, "value")
        return float(value)

    _float = _double

    def _boolean(self, _: Any, value: Any, path: str) -> Any:
        return value if isinstance(value, bool) else self._unreadable(path, "a boolean", value)

    def _timestamp(self, shape: Any, value: Any, path: str) -> Any:
        if self._writes and shape.serialization.get("timestampFormat") == "iso8601":
            return value.isoformat()
        if self._writes:
            if not isinstance(value, datetime) or value.tzinfo is None:
                return self._unreadable(path, "a time with a zone", value)
            return round(value.timestamp(), 3)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return self._unreadable(path, "a timestamp in seconds", value)
        try:
            return datetime.fromtimestamp(round(value, 3), UTC)
        except (OverflowError, ValueError):
            return self._unreadable(path, "a timestamp in seconds", value)

    def _blob(self, _: Any, value: Any, path: str) -> Any:
        if self._writes:
            if not isinstance(value, bytes):
                return self._unreadable(path, "bytes", value)
            return base64.b64encode(value).decode()
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            return self._unreadable(path, "base64", value)

    def _within(self, shape: Any, size: float, path: str, what: str) -> None:
        least, most = shape.metadata.get("min"), shape.metadata.get("max")
        if least is not None and size < least:
            self._broken(path, f"{what} greater than or equal to {least}")
        if most is not None and size > most:
            self._broken(path, f"{what} less than or equal to {most}")

    def _broken(self, path: str, rule: str) -> None:
        self.problems.append(Problem(path, f"Member must satisfy {rule}"))

    def _unreadable(self, path: str, wanted: str, value: Any) -> Any:
        self.is_unreadable = True
        self.problems.append(Problem(path, f"Expected {wanted}, got {type(value).__name__}"))
        return value


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
