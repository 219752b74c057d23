"""The rules of rules.json as findings, and which of them a field breaks."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..settings import diagnostic
from .frontmatter import Document
from .yaml_core import Where

RULES = {
    rule["id"]: rule
    for rule in json.loads(Path(__file__).with_name("rules.json").read_text("utf-8"))["rules"]
}
BY_FIELD = {
    (rule["file"], rule["field"], rule["kind"]): id
    for id, rule in RULES.items()
    if rule["kind"] != "rule"
}
TYPES = ("agentcore_memory", "custom", "lambda", "rest-api", "s3", "valkey")
# What could move a cursor, turn a text around or end a line where findings are printed.
SHORT, LONG = 80, 300  # characters of what a file says, and of why something failed
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def finding(id: str, file: str, line: int, **names: Any) -> dict[str, Any]:
    """A finding of rule `id`; `names` are those in its message."""
    rule = RULES[id]

    def shown(name: re.Match[str]) -> str:
        return show(names.get(name[1], name[0]), LONG if name[1] == "why" else SHORT)

    message = re.sub(r"\{(\w+)\}", shown, rule["message"])
    return diagnostic(id, message, rule["severity"], show(file), line)


def show(value: Any, most: int = SHORT) -> str:
    """A value in one line of so many characters at most."""
    text = UNPRINTABLE.sub("\ufffd", str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def at(id: str, document: Document, *where: str | int, **names: Any) -> dict[str, Any]:
    """A finding of rule `id` about what stands somewhere in a document, in its own words."""
    value = document.texts.get(where, "a mapping or a list") or "nothing"
    return finding(id, document.file, document.line(where), **{"value": value, **names})


def wrong_fields(kind: str, model: type[BaseModel], document: Document) -> list[dict[str, Any]]:
    """What is wrong with single fields of a document; `kind` is collection, agent or iam."""
    try:
        model.model_validate(document.data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        return [_wrong_field(kind, document, one["loc"], one["type"]) for one in errors]
    return []


def _wrong_field(kind: str, document: Document, place: Where, type: str) -> dict[str, Any]:
    steps = list(place)
    if steps[0] == "backend":  # behind which a union adds the type that it chose
        del steps[1:2]
        if steps[1:2] == ["transport"]:
            del steps[2:3]
    if type.startswith("union_tag"):
        steps.append("type")
    is_missing = type in ("missing", "union_tag_not_found")
    what = "missing" if is_missing else "unknown" if type == "extra_forbidden" else "invalid"
    if what == "invalid":
        document.invalid.add(tuple(steps))
    names = _names(document, steps)
    name = ".".join(names[:-1] if what == "unknown" else names)
    of_any_transport = re.sub(r"transport\[[a-z-]+\]", "transport", name)
    id = BY_FIELD.get((kind, name, what)) or BY_FIELD[(kind, of_any_transport, what)]
    return at(id, document, *steps, name=steps[-1])


def _names(document: Document, where: list[str | int]) -> list[str]:
    """The way to a field as rules name it: backend[s3], region; without places in lists."""
    names: list[str] = []
    for step in where:
        above = names[-1] if names else ""
        type = document.get("backend", *["transport"][: above == "transport"], "type")
        if above in ("backend", "transport") and type in TYPES:
            names[-1] += f"[{type}]"
        if isinstance(step, str):
            names.append("*" if above == "retrieval_config" else step)
    return names
