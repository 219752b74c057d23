"""A snapshot as it travels to a custom backend and back, and what stands for one set aside."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from ..contract import well_formed

NOBODY = {"actor": None, "turn": 1, "key": None, "reply": ""}


def now() -> str:
    """The time, as snapshots and manifests have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_wire(snapshot: bytes) -> dict[str, Any]:
    """A committed snapshot in the words of the contract, with all that its `data` must have."""
    value: dict[str, Any] = json.loads(snapshot)
    value["data"].setdefault("state", {})
    value["data"].setdefault("system_prompt", None)
    return value


def from_wire(value: dict[str, Any], manifest: Any) -> bytes:
    """What was committed. A foreign version in the manifest shows in it, so that it is refused.

    The snapshot of another runtime, which is of version "1", has no turns that it could count.
    """
    if isinstance(value.get("data"), dict):
        value["data"].pop("system_prompt", None)  # the code's own applies
    if value.get("schema_version") == "1":
        value = {"app_data": NOBODY} | value
    version = "1.0" if manifest is None else manifest.get("schema_version")
    if version not in ("1", "1.0"):
        value["schema_version"] = f"{version} in its manifest"
    return well_formed(json.dumps(value, ensure_ascii=False)).encode()


def set_aside(raw: bytes) -> dict[str, Any]:
    """What keeps the bytes of an answer that cannot be read."""
    try:
        data = {"set_aside": raw.decode()}
    except UnicodeDecodeError:
        data = {"set_aside_base64": base64.b64encode(raw).decode()}
    return _snapshot(data, "latest")


def marker(name: str) -> dict[str, Any]:
    """What replaces the latest snapshot when it was set aside under that name."""
    return _snapshot({}, name)


def is_marker(value: Any) -> bool:
    """Whether an answer is a marker, or what was set aside."""
    app_data = value.get("app_data") if isinstance(value, dict) else None
    return isinstance(app_data, dict) and "set_aside" in app_data


def _snapshot(data: dict[str, Any], aside: str) -> dict[str, Any]:
    snapshot = {"data": data, "schema_version": "1.0", "created_at": now(), "scope": "agent"}
    return snapshot | {"app_data": {"set_aside": aside}}
