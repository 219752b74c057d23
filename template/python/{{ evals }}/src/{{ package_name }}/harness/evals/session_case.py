"""Converts a stored session to a case, and marks text that looks personal."""

import io
import re
from typing import Any

from ruamel.yaml import YAML

from .adapter import turns_of

# E-mail addresses; phone, card and account numbers.
PERSONAL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|\+?\d[\d ()/.-]{6,}\d|[A-Z]{2}\d{2}[A-Z0-9]{10,}")
HEAD = """\
# From session {session}. <<...>> marks text that looks personal.
# Replace all personal data. Then add your expectations: see `expect` in schema.json.
"""


def case_of(session: str, messages: list[Any]) -> str:
    """Return a case as YAML; its stubs and `offline` lines repeat the session's answers."""
    stubs: dict[str, list[Any]] = {}
    turns: list[Any] = []
    for turn in turns_of(messages):
        steps: list[Any] = []
        for call in turn["calls"]:
            steps.append({"tool": call["tool"], "input": call["input"]})
            kind = "error" if call["failed"] else "answer"
            stub = {"input": call["input"], kind: call["answer"]}
            stubs.setdefault(call["tool"], []).append(stub)
        turns.append({"prompt": turn["prompt"], "offline": [*steps, turn["reply"]]})
    name = re.sub("[^a-z0-9]+", "-", f"session-{session[:40].lower()}").strip("-")
    case = {
        "name": name,
        **({"tools": _mark_personal(stubs)} if stubs else {}),
        "turns": _mark_personal(turns),
    }
    text = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump({"cases": [case]}, text)
    return HEAD.format(session=session) + text.getvalue()


def _mark_personal(value: Any) -> Any:
    match value:
        case str():
            return PERSONAL.sub(lambda text: f"<<{text[0]}>>", value)
        case dict():
            return {name: _mark_personal(item) for name, item in value.items()}
        case list():
            return [_mark_personal(item) for item in value]
    return value
