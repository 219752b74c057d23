"""Read the front matter of a Markdown file: its values and their line numbers.

Front matter is the text between a first line of --- and the next such line. It is YAML 1.2 without
the features that make a file hard to review.
"""

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, tokens
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..contract import well_formed
from ..findings import diagnostic

MAX_BYTES = 100_000
MAX_DEPTH = 32
MAX_MESSAGE_CHARS = 300
CONTROL = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# Characters that could move the cursor, reverse text or break a line in printed findings.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

CONSTANTS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
CONSTANTS |= dict.fromkeys(("true", "True", "TRUE"), True)
CONSTANTS |= dict.fromkeys(("false", "False", "FALSE"), False)
PREFIXED = re.compile("0o[0-7]+|0x[0-9a-fA-F]+")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

STARTS = (
    tokens.BlockMappingStartToken,
    tokens.BlockSequenceStartToken,
    tokens.FlowMappingStartToken,
    tokens.FlowSequenceStartToken,
)
ENDS = (tokens.BlockEndToken, tokens.FlowMappingEndToken, tokens.FlowSequenceEndToken)
ALIAS = "Anchors and aliases (& and *) are not allowed: write the value out, or quote it."
TAG = "Tags such as !!str are not allowed: put text in quotes."
# Mapping keys and list indexes, from the root.
FieldPath = tuple[str | int, ...]
Findings = Iterator[dict[str, Any]]


class Rejected(Exception):
    """Stops reading a file; `finding` holds the arguments of `Document.reject`."""

    def __init__(self, id: str, line: int, message: str) -> None:
        super().__init__(id, line, message)
        self.finding = (id, line, message)


@dataclass
class Document:
    """The front matter of a file; `data` is None if `errors` is not empty."""

    file: str
    data: dict[str, Any] | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[FieldPath, int] = field(default_factory=lambda: {(): 1})

    def line(self, path: FieldPath) -> int:
        """Return the line of a key or list item, or of its parent if it is absent."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def finding(self, id: str, message: str, *path: str | int) -> dict[str, Any]:
        """Return a finding about a field."""
        return finding(id, self.file, self.line(path), message)

    def add_error(self, id: str, line: int, message: str) -> None:
        """Add an error to `errors`."""
        self.errors.append(finding(id, self.file, line, message))


def finding(id: str, file: str, line: int, message: str) -> dict[str, Any]:
    """Return a diagnostic on one printable line; E or W in its id sets the severity."""
    severity = "error" if id[4] == "E" else "warning"
    text = UNPRINTABLE.sub("\ufffd", message)
    text = text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
    return diagnostic(id, text, severity, UNPRINTABLE.sub("\ufffd", file), line)


def read_document(path: Path, file: str) -> Document:
    """Read the file at `path`; findings show it as `file`. Never raises."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError:
        message = "The file cannot be read: put a readable regular file here."
        return Document(file, errors=[finding("AML-E00E", file, 0, message)])
    return parse_document(content, file)


def parse_document(content: bytes, file: str) -> Document:
    """Parse the content of a file; findings show it as `file`. Never raises."""
    document = Document(file)
    try:
        text = _front_matter(content)
        _scan(document, text)
        if not document.errors:
            data = _value(document, YAML(typ="safe", pure=True).compose(text), ())
            if not isinstance(data, dict):
                message = "The front matter must be a mapping: write lines of `key: value`."
                raise Rejected("AML-E005", 1, message)
            document.data = None if document.errors else data
    except Rejected as error:
        document.add_error(*error.finding)
    except RecursionError:
        message = f"The front matter is nested more than {MAX_DEPTH} levels deep: flatten it."
        document.add_error("AML-E00D", 1, message)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        document.add_error("AML-E002", line, f"Invalid YAML: {error.problem or error.context}.")
    except Exception as error:  # noqa: BLE001 (the parser raises more, as for "\U00110000")
        document.add_error("AML-E002", 1, f"Invalid YAML: {type(error).__name__}.")
    return document


def _front_matter(content: bytes) -> str:
    """Return the text between the first two lines of ---; it starts on line 2 of the file."""
    if len(content) > MAX_BYTES:
        raise Rejected("AML-E00C", 1, f"The file is larger than {MAX_BYTES} bytes: shorten it.")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise Rejected("AML-E00B", 1, "The file is not UTF-8: save it as UTF-8.") from None
    # The first line may end with a comment.
    match = re.match(r"---[ \t]*(?:[ \t]#.*)?\n((?s:.*?\n)??)---[ \t]*(\n|\Z)", text)
    if match is None:
        message = "The front matter is missing: put it at the top of the file, "
        raise Rejected("AML-E001", 1, message + "between two lines of ---.")
    if control := CONTROL.search(match[1]):
        message = "Tabs and control characters are not allowed: write spaces instead."
        raise Rejected("AML-E0D1", match[1].count("\n", 0, control.start()) + 2, message)
    return match[1]


def _scan(document: Document, text: str) -> None:
    """Reject anchors, aliases and tags before the parser resolves them, and deep nesting."""
    level = 0
    for token in YAML(typ="safe", pure=True).scan(text):
        level += isinstance(token, STARTS) - isinstance(token, ENDS)
        if level > MAX_DEPTH:  # the scanner's time is quadratic in the depth
            raise RecursionError
        if isinstance(token, tokens.AliasToken | tokens.AnchorToken):
            document.add_error("AML-E007", token.start_mark.line + 2, ALIAS)
        elif isinstance(token, tokens.TagToken):
            document.add_error("AML-E008", token.start_mark.line + 2, TAG)


def _value(document: Document, node: Node | None, path: FieldPath) -> Any:
    """Return the value of a node, and store the lines of its descendants."""
    if len(path) >= MAX_DEPTH:
        raise RecursionError
    if isinstance(node, MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            is_empty = isinstance(item, ScalarNode) and item.value == ""
            line = document.lines[path] if is_empty else item.start_mark.line + 2
            document.lines[(*path, index)] = line
        return [_value(document, item, (*path, index)) for index, item in enumerate(node.value)]
    if not isinstance(node, ScalarNode):
        return None
    text = well_formed(node.value)
    return scalar(text) if node.style is None else text


def _mapping(document: Document, node: MappingNode, path: FieldPath) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 2
        is_scalar = isinstance(key, ScalarNode)
        name = well_formed(key.value) if is_scalar else ""
        if is_scalar and key.style is None and name == "<<":
            document.add_error(
                "AML-E009", line, "Merge keys (<<) are not allowed: write the keys out."
            )
        elif not is_scalar or (key.style is None and not isinstance(scalar(name), str)):
            document.add_error("AML-E00A", line, "A key is not text: put it in quotes.")
        elif name in values:
            message = f"The key {name} is repeated in its mapping: keep one."
            document.add_error("AML-E006", line, message)
        else:
            document.lines[(*path, name)] = line
            values[name] = _value(document, value, (*path, name))
    return values


def scalar(text: str) -> Any:
    """Return the value of a plain scalar in YAML 1.2: dates and `yes` are text, `010` is ten."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if PREFIXED.fullmatch(text):
        return int(text, 0) if len(text) < 250 else float("inf")
    if NUMBER.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if NOT_FINITE.fullmatch(text) else text
