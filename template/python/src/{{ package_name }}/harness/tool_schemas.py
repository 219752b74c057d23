"""Checks tools (name, description, JSON Schema) and tool calls against the rules of providers.

The rules come from the references and error messages of OpenAI, Anthropic and Amazon Bedrock. A
provider that rejects a tool rejects the whole request, and so every turn.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from .contract import is_blank, well_formed_value
from .findings import Finding, agent_file, diagnostic
from .log import causes_of

CALL_ID = "[a-zA-Z0-9_-]{1,40}"  # OpenAI's maximum is 40 characters
NAME = "[a-zA-Z0-9_-]{1,64}"
PROPERTY_KEY = "[a-zA-Z0-9_.-]{1,64}"
MAX_DESCRIPTION_CHARS = 1024
TOP_LEVEL_FORBIDDEN = ("allOf", "anyOf", "oneOf", "enum", "not")
# Results of rejected calls.
INVALID_ARGUMENTS = (
    "The arguments of this call are not one JSON object, so the tool did not run."
    " Send the call again. Received: "
)
TOO_MANY = "Too many calls in one step: at most {} run."
MAX_QUOTED_CHARS = 200  # from an invalid name or invalid arguments
# The keywords whose values contain schemas: a schema, a list or a map.
SCHEMAS = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def check_tools(declarations: list[tuple[str, str, Any]]) -> list[Finding]:
    """Return findings about tools that a provider or a model cannot use."""
    findings = list[Finding]()
    names = Counter(name for name, _, _ in declarations)
    for name, description, schema in declarations:
        problems = problems_of(name, description, schema)
        if description.strip() in {"", name}:  # Strands describes a tool by its name
            problems.append("it has no description: tell the model when to call it")
        findings += [report(f"Tool {name}: {problem}.") for problem in problems]
    same = [name for name, number in names.items() if number > 1]
    problem = "another tool has this name: rename one of them"
    return findings + [report(f"Tool {name}: {problem}.") for name in same]


def report(message: str) -> Finding:
    """Return a finding about the agent's own tools."""
    return diagnostic("TOOL", message, "warning", agent_file())


def problems_of(name: str, description: str, schema: Any) -> list[str]:
    """Return the reasons why a provider may reject a tool."""
    problems = list[str]()
    if not re.fullmatch(NAME, name):
        problems.append(f"its name must match {NAME}")
    if len(description) > MAX_DESCRIPTION_CHARS:
        size = f"{len(description)} characters, the maximum is {MAX_DESCRIPTION_CHARS}"
        problems.append(f"its description has {size}")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return [*problems, "its schema must be of type object"]
    top = [key for key in TOP_LEVEL_FORBIDDEN if key in schema]
    problems += [f"its schema has {key} at the top level" for key in top]
    if not isinstance(schema.get("properties"), dict):
        problems.append("its schema has no properties")
    for path, part in parts_of(schema):
        place = ".".join(path) or "the top level"
        items = part.get("items")
        if isinstance(items, list):
            problems.append(f"the tuple at {place} needs prefixItems, not a list of items")
        elif part.get("type") == "array" and items is None and "prefixItems" not in part:
            problems.append(f"the array at {place} has no items")
        for key in part.get("properties") or {}:
            if not re.fullmatch(PROPERTY_KEY, key):
                problems.append(f"the property {key!r} at {place} must match {PROPERTY_KEY}")
        ref = part.get("$ref")
        if isinstance(ref, str) and target_of(schema, ref) is None:
            problems.append(f"the $ref at {place} has no target")
    return problems


def parts_of(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each object in a schema, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in MAPS and isinstance(value, dict):
            for name, part in value.items():
                yield from parts_of(part, (*path, key, name))
        elif key in SCHEMAS or key in LISTS:
            for at, part in enumerate(value if isinstance(value, list) else [value]):
                inner = (*path, key, str(at)) if isinstance(value, list) else (*path, key)
                yield from parts_of(part, inner)


def target_of(schema: Any, ref: str) -> Any:
    """Return the target of a `$ref`, such as `#/$defs/item`, in a schema, or None."""
    if not ref.startswith("#"):
        return None
    pointer = unquote(ref[1:])
    if pointer and not pointer.startswith("/"):
        anchored = (part for _, part in parts_of(schema) if part.get("$anchor") == pointer)
        return next(anchored, None)
    target = schema
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(key)
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target


def valid_call_name(name: str) -> str:
    """Return a call name with only the characters that providers accept."""
    return re.sub("[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Parse the arguments of a call; return None unless they are a JSON object or blank."""
    if is_blank(text):
        return {}
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        return well_formed_value(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    """Return a finite number. Raises ValueError for NaN and infinity."""
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def refused_tool(error: BaseException, names: list[str]) -> str:
    """Return the name of the tool that a provider's error rejects, or "".

    Providers write `tools[3]`, `tools.3.custom.name` or `Invalid schema for function 'name'`.
    """
    for cause in causes_of(error):
        text = str(cause)
        if found := re.search(r"\btools?(?:\[|\.)(\d{1,4})\b", text):
            at = int(found[1])
            return names[at] if at < len(names) else ""
        if found := re.search(rf"function '({NAME})'", text):
            return found[1] if found[1] in names else ""
    return ""
