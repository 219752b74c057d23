"""The fields of collection, agent and grant files: their types, defaults and limits.

Each backend's module has its fields; `check` has the rules that span several files.
"""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from ..contract import is_blank
from .backends import BackendConfig
from .fields import INTEGRAL, Extensible, Strict, matches, satisfies


def is_date(value: str) -> bool:
    """Whether a text is a calendar date such as 2026-04-01."""
    try:
        return date.fromisoformat(value).isoformat() == value >= "1000"
    except ValueError:
        return False


Prose = Annotated[str, satisfies(lambda value: not is_blank(value), "a text that is not blank")]
Date = Annotated[str, satisfies(is_date, "a date such as 2026-04-01")]
AgentId = Annotated[str, matches("[a-z0-9_-]{1,64}", "1 to 64 characters of a-z 0-9 _ -")]
CollectionId = Annotated[str, matches("[a-z0-9_-]{3,64}", "3 to 64 characters of a-z 0-9 _ -")]
NUMBER = "(0|[1-9][0-9]{0,8})"
BUILD = r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
LABEL = "(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
Version = Annotated[
    str,
    matches(
        rf"{NUMBER}\.{NUMBER}\.{NUMBER}(-{LABEL}(\.{LABEL})*)?(\+{BUILD})?",
        "a semantic version such as 1.0.0",
    ),
]


class Meta(Strict):
    name: Prose
    description: Prose
    owner: Prose
    tags: list[Prose] = Field(default=[])
    last_updated: Date | None = None


class Scope(Strict):
    lifetime: Literal["session", "project", "user"]


class Writeback(Strict):
    enabled: bool


class Collection(Strict):
    spec_version: Literal["1.2"]
    collection_id: CollectionId
    version: Version
    status: Literal["draft", "active", "deprecated", "disabled"]
    meta: Meta
    scope: Scope
    backend: Annotated[BackendConfig, Field(discriminator="type")]
    writeback: Writeback


class AgentMemory(Extensible):
    mode: Literal["none", "session", "project", "user"]
    read_collections: list[str] = Field(default=[])
    write_collections: list[str] = Field(default=[])


class State(Strict):
    """The parts of earlier turns that a model sees; names come from the agent definition."""

    session_history: Literal["ephemeral", "session"] = "session"
    working_state: Literal["ephemeral", "session"] = "session"  # tool calls and their results
    scratchpad_visible_to_model: bool = True  # the working state of earlier turns
    max_state_tokens: Annotated[int, INTEGRAL, Field(ge=1, le=1_000_000_000)] | None = None


def is_known(name: str, value: object) -> bool:
    """Whether this project supports a field of `state`; other tools may define more."""
    try:
        State.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _known_fields(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return {name: value for name, value in state.items() if is_known(name, value)}


class Agent(Extensible):
    agent_id: AgentId
    memory: AgentMemory
    state: Annotated[State, BeforeValidator(_known_fields)] = Field(default=State())


class Grant(Extensible):
    ref: CollectionId
    access: Literal["read", "write", "read-write", "deny"]


class Grants(Extensible):
    agent_id: AgentId
    collections: list[Grant] = Field(default=[])
