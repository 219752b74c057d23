"""Compares a turn with its expectations."""

import json
import re
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

LONGEST = 200  # characters of a value in a line


def failures_of(seen: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    """Return in which ways a turn is not as expected, a line each."""
    wanted, found = expect.get("reply", {}), list[str]()
    outcome, reply = expect.get("outcome", "committed"), seen["reply"]
    if seen["outcome"] != outcome:
        found.append(f"the turn ended as {seen['outcome']}, not {outcome}{seen['detail']}")
    found += [
        f"the reply lacks {_show(text)}" for text in wanted.get("contains", []) if text not in reply
    ]
    found += [
        f"the reply contains {_show(text)}" for text in wanted.get("lacks", []) if text in reply
    ]
    if "matches" in wanted:
        try:
            if not re.search(wanted["matches"], reply):
                found.append(f"the reply does not match {_show(wanted['matches'])}")
        except re.error as error:
            found.append(f"{_show(wanted['matches'])} is no regular expression: {error}")
    if "schema" in wanted:
        found += _not_as_schema(reply, wanted["schema"])
    if "tools" in expect:
        found += _other_calls(seen["calls"], expect["tools"])
    called = {call["tool"] for call in seen["calls"]}
    found += [f"{name} was called" for name in expect.get("never", []) if name in called]
    for limit in ("tokens", "seconds"):
        if seen[limit] > expect.get(limit, seen[limit]):
            found.append(f"it took {seen[limit]} {limit}, more than {expect[limit]}")
    return found


def fits(wanted: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether arguments have these values; others may be any."""
    return all(name in given and given[name] == value for name, value in wanted.items())


def _other_calls(calls: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[str]:
    are_same = len(calls) == len(wanted) and all(map(_is_same, calls, wanted))
    return [] if are_same else [f"it called {_in_words(calls)}, not {_in_words(wanted)}"]


def _is_same(call: dict[str, Any], wanted: dict[str, Any]) -> bool:
    has_input = call["tool"] == wanted["tool"] and fits(wanted.get("input", {}), call["input"])
    return has_input and wanted.get("answer", "") in call.get("answer", "")


def _in_words(calls: list[dict[str, Any]]) -> str:
    shown = [
        f"{call['tool']} {json.dumps(call.get('input', {}), ensure_ascii=False)}"
        + (f" -> {call['answer']}" if "answer" in call else "")
        for call in calls
    ]
    return ", ".join(shown)[:LONGEST] or "nothing"


def _not_as_schema(reply: str, schema: dict[str, Any]) -> list[str]:
    try:
        Draft202012Validator.check_schema(schema)
        errors = [*Draft202012Validator(schema).iter_errors(json.loads(reply))]
    except SchemaError as error:
        return [f"the schema is invalid: {error.message[:LONGEST]}"]
    except ValueError:
        return ["the reply is not JSON"]
    return [f"the reply violates the schema: {error.message[:LONGEST]}" for error in errors[:3]]


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:LONGEST]
