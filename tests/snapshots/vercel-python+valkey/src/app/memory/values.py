"""The kinds of values that fields hold, and mappings of fields."""

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ..contract import is_blank

ENV = "env:[A-Za-z_][A-Za-z0-9_]{0,127}"


def only(test: Callable[[Any], object]) -> AfterValidator:
    """A condition that a value of the right type has to meet."""

    def check(value: Any) -> Any:
        if not test(value):
            raise ValueError
        return value

    return AfterValidator(check)


def matches(pattern: str) -> AfterValidator:
    """The condition that all of a text matches a pattern."""
    return only(re.compile(pattern).fullmatch)


def is_date(value: str) -> bool:
    """Whether a text is a day of the calendar, such as 2026-04-01."""
    try:
        return date.fromisoformat(value).isoformat() == value >= "1000"
    except ValueError:
        return False


WHOLE = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
Prose = Annotated[str, only(lambda value: not is_blank(value))]
# env:NAME, an ARN or the path of a secret, and behind # a field of it.
Reference = Annotated[str, matches(f'({ENV}|(?!env:)[!-"$-~]{{1,512}})(#[!-~]{{1,128}})?')]
Day = Annotated[str, only(is_date)]
Region = Annotated[str, matches("[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}")]
AgentId = Annotated[str, matches("[a-z0-9_-]{1,64}")]
CollectionId = Annotated[str, matches("[a-z0-9_-]{3,64}")]
Version = Annotated[str, matches(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}")]
Milliseconds = Annotated[int, WHOLE, Field(ge=0, le=900_000)]
Life = Annotated[int, WHOLE, Field(ge=1, le=2_147_483_647)]


class Open(BaseModel):
    """A mapping that others may add fields to. A field that is there has a value."""

    model_config = ConfigDict(frozen=True, strict=True)

    @field_validator("*")
    @classmethod
    def _has_value(cls, value: Any) -> Any:
        if value is None:
            raise ValueError
        return value


class Closed(Open):
    """A mapping of which every field is known."""

    model_config = ConfigDict(extra="forbid")
