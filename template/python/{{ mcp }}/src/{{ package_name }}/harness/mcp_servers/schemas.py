"""Repairs the declaration of a tool, so that every model provider accepts it.

Servers may declare schemas that only some clients accept. One such tool makes a provider reject
the request of the whole turn.
"""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from ..contract import well_formed
from ..tool_schemas import (
    LISTS,
    MAPS,
    MAX_DESCRIPTION_CHARS,
    NAME,
    PROPERTY_KEY,
    SCHEMAS,
    parts_of,
    target_of,
)

MAX_DECLARATION_CHARS = 20_000  # description and schema of a tool
MAX_DEPTH = 60
MAX_BRANCHES = 1000  # at the top level
MAX_NOTE_CHARS = 400
TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
# Type names that servers write instead; "" means any type.
ALIASES = {
    "None": "null",
    "any": "",
    "bool": "boolean",
    "dict": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "list": "array",
    "map": "object",
    "str": "string",
    "text": "string",
    "tuple": "array",
}
DROPPED = ("$schema", "$id", "$anchor", "$comment")
NUMBERS = (
    *("maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength"),
    *("minProperties", "minimum", "multipleOf"),
)


class NotRepairableError(ValueError):
    """No provider would accept the tool; the message is the reason."""


class RepairedTool:
    """A declaration that providers accept; it can restore the server's property names.

    Raises NotRepairableError.
    """

    def __init__(self, description: str, schema: Any) -> None:
        self._keys = dict[str, str]()  # new property names, by the server's names
        self._notes = list[str]()
        self._added_definitions = dict[str, Any]()
        self._locations = dict[str, str]()
        self._branches = 0
        try:
            text = _check_size({} if schema is None or schema is True else schema)
            self._root = json.loads(well_formed(text))
            self.schema = self._repair()
            note = " ".join(self._notes)[:MAX_NOTE_CHARS]
            self.description = _shorten(well_formed(description), note)
            _check_size([self.description, self.schema])
        except RecursionError:
            raise NotRepairableError("its schema is nested too deeply") from None
        self._names = {new: old for old, new in self._keys.items()}

    def restore(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with the names that the server declared."""
        return self._restore(arguments, [self.schema]) if self._names else arguments

    def _repair(self) -> dict[str, Any]:
        if not isinstance(self._root, dict):
            raise NotRepairableError("its schema is not an object")
        self._rename()
        merged = self._merge(self._root, ())
        for key in ("$defs", "definitions"):  # every `$ref` points into the root
            if key in self._root:
                merged[key] = self._root[key]
        if "type" in merged and not _is_object(merged["type"]):
            raise NotRepairableError("its schema is not of type object")
        schema = self._clean(merged | {"type": "object"}, 0)
        if self._added_definitions:
            schema["$defs"] = schema.get("$defs", {}) | self._added_definitions
        return schema

    def _rename(self) -> None:
        """Rename properties whose names providers reject."""
        properties = [part.get("properties") for _, part in parts_of(self._root)]
        keys = [key for each in properties if isinstance(each, dict) for key in each]
        taken = set(keys)
        for key in keys:
            if key in self._keys or re.fullmatch(PROPERTY_KEY, key):
                continue
            name = re.sub("[^a-zA-Z0-9_.-]", "_", key) or "_"
            if len(name) > 64:
                name = with_hash(name, key)
            while name in taken:
                name = with_hash(name, f"{key}{name}")
            taken.add(name)
            self._keys[key] = name

    def _merge(self, part: Any, path: tuple[str, ...]) -> dict[str, Any]:
        """Return the top level of a schema without `$ref` and combinators."""
        self._branches += 1
        if self._branches > MAX_BRANCHES or len(path) > MAX_DEPTH:
            raise NotRepairableError("its schema is nested too deeply")
        if not isinstance(part, dict):
            return {}
        base = {key: value for key, value in part.items() if value is not None}
        ref = base.pop("$ref", None)
        if isinstance(ref, str) and ref not in path:
            target = self._merge(target_of(self._root, ref), (*path, ref))
            base = _join(target, base)
        for branch in _branches(base.pop("allOf", None)):
            base = _join(base, self._merge(branch, (*path, "allOf")))
        for keyword in ("anyOf", "oneOf"):
            merged = [
                self._merge(branch, (*path, keyword))
                for branch in _branches(base.pop(keyword, None))
            ]
            objects = [it for it in merged if _is_object(it.get("type", "object"))]
            if merged and not objects:
                raise NotRepairableError("its schema is not of type object")
            if objects:
                base = self._with_alternatives(base, objects)
        conditional = [base.pop(key, None) for key in ("then", "else")]
        for branch in conditional:
            optional = self._merge(branch, (*path, "then"))
            base = _join(base, {"properties": _map(optional.get("properties"))})
        for key in ("const", "enum", "if", "not"):
            base.pop(key, None)
        return base

    def _with_alternatives(
        self, base: dict[str, Any], branches: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return an object with the properties of all branches; note the required combinations."""
        properties = dict[str, list[Any]]()
        for branch in branches:
            for key, value in _map(branch.get("properties")).items():
                values = properties.setdefault(key, [])
                if value not in values:
                    values.append(value)
        base_properties = _map(base.get("properties"))
        added = {
            key: values[0] if len(values) == 1 else {"anyOf": values}
            for key, values in properties.items()
            if key not in base_properties
        }
        required = _strings(base.get("required"))
        alternatives = list[list[str]]()
        for branch in branches:
            needed = [key for key in _strings(branch.get("required")) if key not in required]
            if needed not in alternatives:
                alternatives.append(needed)
        if len(alternatives) > 1:
            groups = [
                ", ".join(self._keys.get(key, key) for key in keys) or "none"
                for keys in alternatives
            ]
            self._notes.append(f"Arguments that go together: {'; or '.join(groups)}.")
        common = [key for key in alternatives[0] if all(key in keys for keys in alternatives)]
        merged = base | {"properties": base_properties | added}
        if required or common:
            merged["required"] = [*required, *common]
        if added:
            merged.pop("additionalProperties", None)
        return merged

    def _clean(self, part: Any, depth: int) -> dict[str, Any]:
        """Return a repaired part of a schema, with missing keywords added."""
        if depth > MAX_DEPTH:
            raise NotRepairableError("its schema is nested too deeply")
        if part is False:
            return {"not": {}}
        if isinstance(part, str):
            kind = ALIASES.get(part, part)
            return {"type": kind} if kind in TYPES else {}
        if not isinstance(part, dict):
            return {}
        cleaned = dict[str, Any]()
        for key, value in part.items():
            is_kept = key in ("const", "default") or value is not None
            if is_kept and key not in DROPPED:
                cleaned.update(self._keyword(key, value, depth + 1))
        _limit_exclusively(cleaned)
        self._complete(cleaned, part, depth + 1)
        return cleaned

    def _keyword(self, key: str, value: Any, depth: int) -> dict[str, Any]:
        """Return a keyword with its repaired value, or nothing if it is dropped."""
        if key == "$ref":
            location = self._locate(value, depth) if isinstance(value, str) else ""
            return {"$ref": location} if location else {}
        if key == "type":
            return _type(value)
        if key == "properties":
            return {
                key: {
                    self._keys.get(name, name): self._clean(inner, depth)
                    for name, inner in _map(value).items()
                }
            }
        if key == "required":
            names = [self._keys.get(name, name) for name in _strings(value)]
            return {key: list(dict.fromkeys(names))} if isinstance(value, list) else {}
        if key in MAPS:
            inner = {name: self._clean(each, depth) for name, each in _map(value).items()}
            return {key: inner} if isinstance(value, dict) else {}
        if key in ("items", "additionalItems", "prefixItems"):
            return {}  # `_complete` has them
        if key in LISTS:
            each = [self._clean(branch, depth) for branch in _branches(value)]
            return {key: each} if each else {}
        if key in SCHEMAS:
            return {key: value if isinstance(value, bool) else self._clean(value, depth)}
        if key == "enum":
            return {key: value} if isinstance(value, list) and value else {}
        if key in ("description", "title"):
            return {key: value} if isinstance(value, str) else {}
        if key in NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            return {}
        return {key: value}

    def _complete(self, cleaned: dict[str, Any], part: dict[str, Any], depth: int) -> None:
        """Add keywords that objects and arrays need; convert a tuple of draft 07 to prefixItems."""
        if "properties" in cleaned and "$ref" not in cleaned:
            cleaned.setdefault("type", "object")
        kinds = cleaned.get("type", [])
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "object" in kinds:
            cleaned.setdefault("properties", {})
        items = part.get("items")
        rest = part.get("additionalItems")
        first = part.get("prefixItems")
        if isinstance(items, list):
            first = items
            items = rest
        if "array" not in kinds and items is None and not first:
            return
        if isinstance(first, list) and first:
            cleaned["prefixItems"] = [self._clean(item, depth) for item in first]
            if items is False:
                maximum = cleaned.get("maxItems", len(first))
                cleaned["maxItems"] = min(maximum, len(first))
        cleaned["items"] = {} if isinstance(items, bool) else self._clean(items, depth)

    def _locate(self, ref: str, depth: int) -> str:
        """Return the target of a `$ref` in the repaired schema, or "" if it has none."""
        target = target_of(self._root, ref)
        if target is None:
            return ""
        tokens = ref.split("/")
        is_definition = len(tokens) == 3 and tokens[1] in ("$defs", "definitions")
        if ref == "#" or (is_definition and tokens[0] == "#"):
            return ref
        if ref not in self._locations:
            name = f"ref_{len(self._locations) + 1}"
            while name in _map(self._root.get("$defs")):
                name += "_"
            self._locations[ref] = f"#/$defs/{name}"
            self._added_definitions[name] = {}
            self._added_definitions[name] = self._clean(target, depth)
        return self._locations[ref]

    def _restore(self, value: Any, parts: list[Any]) -> Any:
        known = [*self._alternatives(parts, {})]
        if isinstance(value, dict):
            restored = {}
            for key, inner in value.items():
                declared = [
                    it["properties"][key] for it in known if key in it.get("properties", {})
                ]
                name = self._names.get(key, key) if declared else key
                additional = [it.get("additionalProperties") for it in known]
                additional += [
                    each for it in known for each in it.get("patternProperties", {}).values()
                ]
                restored[name] = self._restore(inner, declared or additional)
            return restored
        if isinstance(value, list):
            return [
                self._restore(
                    inner,
                    [
                        it["prefixItems"][at]
                        if at < len(it.get("prefixItems", []))
                        else it.get("items")
                        for it in known
                    ],
                )
                for at, inner in enumerate(value)
            ]
        return value

    def _alternatives(self, parts: list[Any], known: dict[int, Any]) -> Iterable[dict[str, Any]]:
        """Return the schemas that apply to a value, without duplicates."""
        for part in parts:
            if not isinstance(part, dict) or id(part) in known:
                continue
            known[id(part)] = part
            inner = [part.get("then"), part.get("else")]
            for keyword in ("allOf", "anyOf", "oneOf"):
                inner += part.get(keyword, [])
            if "$ref" in part:
                inner.append(target_of(self.schema, part["$ref"]))
            self._alternatives(inner, known)
        return known.values()


def valid_name(name: str) -> str:
    """Return a name that every provider accepts."""
    valid = re.sub("[^A-Za-z0-9_-]", "_", name)
    return valid if re.fullmatch(NAME, valid) else with_hash(valid, name)


def with_hash(name: str, original: str) -> str:
    """Return a name of at most 64 characters, made unique by a hash of the original."""
    digest = sha256(original.encode(errors="replace")).hexdigest()
    return f"{name[:55]}_{digest[:8]}"


def _check_size(declared: Any) -> str:
    text = json.dumps(declared, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_DECLARATION_CHARS:
        raise NotRepairableError("its description and schema are too long")
    return text


def _shorten(description: str, note: str) -> str:
    room = MAX_DESCRIPTION_CHARS - len(note) - 1 if note else MAX_DESCRIPTION_CHARS
    if len(description) > room:
        description = description[: room - 1].rstrip() + "…"
    return f"{description}\n{note}".strip()


def _join(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Merge two object schemas; a property of both must satisfy both."""
    properties = dict(_map(left.get("properties")))
    for key, value in _map(right.get("properties")).items():
        is_same = properties.setdefault(key, value) == value
        if not is_same:
            properties[key] = {"allOf": [properties[key], value]}
    required = [*_strings(left.get("required")), *_strings(right.get("required"))]
    joined = left | {key: value for key, value in right.items() if key not in left}
    if properties:
        joined["properties"] = properties
    if required:
        joined["required"] = list(dict.fromkeys(required))
    return joined


def _limit_exclusively(cleaned: dict[str, Any]) -> None:
    """Convert the booleans of draft 04: `exclusiveMinimum: true` beside `minimum`."""
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(cleaned.get(exclusive), bool):
            is_exclusive = cleaned.pop(exclusive)
            if is_exclusive and limit in cleaned:
                cleaned[exclusive] = cleaned.pop(limit)


def _type(value: Any) -> dict[str, Any]:
    kinds = value if isinstance(value, list) else [value]
    known = list[str]()
    for kind in kinds:
        name = ALIASES.get(kind, kind) if isinstance(kind, str) else ""
        if name and name not in TYPES:
            raise NotRepairableError("its schema is not valid")
        if not name:
            return {}
        known.append(name)
    known = list(dict.fromkeys(known))
    if not known:
        return {}
    return {"type": known if isinstance(value, list) else known[0]}


def _is_object(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return "object" in [ALIASES.get(kind, kind) for kind in kinds if isinstance(kind, str)]


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _branches(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
