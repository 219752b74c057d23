"""Makes a case of a stored session, with what looks personal marked."""

import io
import re
from typing import Any

from ruamel.yaml import YAML

from .adapter import turns_of

# E-mail addresses, and numbers that may be of a phone, a card or an account.
PERSONAL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|\+?\d[\d ()/.-]{6,}\d|[A-Z]{2}\d{2}[A-Z0-9]{10,}")
HEAD = """\
# From session {session}. <<...>> marks text that looks personal.
# Replace all personal data. Then add your expectations: see `expect` in schema.json.
"""


def case_of(session: str, messages: list[Any]) -> str:
    """Return a YAML file: its tools answer as they did, and so does the model offline."""
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
    case = {"name": name, **({"tools": _marked(stubs)} if stubs else {}), "turns": _marked(turns)}
    text = io.StringIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump({"cases": [case]}, text)
    return HEAD.format(session=session) + text.getvalue()


def _marked(value: Any) -> Any:
    match value:
        case str():
            return PERSONAL.sub(lambda found: f"<<{found[0]}>>", value)
        case dict():
            return {name: _marked(one) for name, one in value.items()}
        case list():
            return [_marked(one) for one in value]
    return value
