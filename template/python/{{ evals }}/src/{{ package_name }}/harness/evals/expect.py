"""Compares a turn with its expectations."""

import json
import re
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

MAX_LENGTH = 200  # characters of a quoted value


def failures_of(record: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    """Compare the record of a turn with its expectations; return one line per difference."""
    failures: list[str] = []
    reply_rules = expect.get("reply", {})
    outcome = expect.get("outcome", "committed")
    reply = record["reply"]
    if record["outcome"] != outcome:
        failures.append(f"the turn ended as {record['outcome']}, not {outcome}{record['detail']}")
    failures += [
        f"the reply lacks {_quote(text)}"
        for text in reply_rules.get("contains", [])
        if text not in reply
    ]
    failures += [
        f"the reply contains {_quote(text)}"
        for text in reply_rules.get("lacks", [])
        if text in reply
    ]
    if "matches" in reply_rules:
        try:
            if not re.search(reply_rules["matches"], reply):
                failures.append(f"the reply does not match {_quote(reply_rules['matches'])}")
        except re.error as error:
            failures.append(
                f"{_quote(reply_rules['matches'])} is not a regular expression: {error}"
            )
    if "schema" in reply_rules:
        failures += _schema_errors(reply, reply_rules["schema"])
    if "tools" in expect:
        failures += _compare_calls(record["calls"], expect["tools"])
    called = {call["tool"] for call in record["calls"]}
    failures += [f"{name} was called" for name in expect.get("never", []) if name in called]
    for limit in ("tokens", "seconds"):
        if record[limit] > expect.get(limit, record[limit]):
            failures.append(f"it took {record[limit]} {limit}, more than {expect[limit]}")
    return failures


def fits(expected: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Return whether the arguments include the expected values."""
    return all(name in arguments and arguments[name] == it for name, it in expected.items())


def _compare_calls(calls: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    are_same = len(calls) == len(expected) and all(map(_is_same, calls, expected))
    return [] if are_same else [f"it called {_describe(calls)}, not {_describe(expected)}"]


def _is_same(call: dict[str, Any], expected: dict[str, Any]) -> bool:
    is_same_tool = call["tool"] == expected["tool"]
    has_arguments = fits(expected.get("input", {}), call["input"])
    return is_same_tool and has_arguments and expected.get("answer", "") in call.get("answer", "")


def _describe(calls: list[dict[str, Any]]) -> str:
    descriptions = [
        f"{call['tool']} {json.dumps(call.get('input', {}), ensure_ascii=False)}"
        + (f" -> {call['answer']}" if "answer" in call else "")
        for call in calls
    ]
    return ", ".join(descriptions)[:MAX_LENGTH] or "nothing"


def _schema_errors(reply: str, schema: dict[str, Any]) -> list[str]:
    try:
        Draft202012Validator.check_schema(schema)
        errors = [*Draft202012Validator(schema).iter_errors(json.loads(reply))]
    except SchemaError as error:
        return [f"the schema is invalid: {error.message[:MAX_LENGTH]}"]
    except ValueError:
        return ["the reply is not JSON"]
    return [f"the reply violates the schema: {error.message[:MAX_LENGTH]}" for error in errors[:3]]


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:MAX_LENGTH]
