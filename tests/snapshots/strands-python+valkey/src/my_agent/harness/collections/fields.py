"""What several models have in common: types of fields, and references to secrets."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

from .reader import Document, Findings


def satisfies(test: Callable[[Any], object], what: str) -> AfterValidator:
    """Require that a value passes a test; `what` describes those that do."""

    def check(value: Any) -> Any:
        if not test(value):
            raise PydanticCustomError("form", "Input should be {what}", {"what": what})
        return value

    return AfterValidator(check)


def matches(pattern: str, what: str) -> AfterValidator:
    """Require that a whole text matches a pattern."""
    return satisfies(re.compile(pattern).fullmatch, what)


# An integer in any notation: in YAML's JSON schema 5.0 is one too.
INTEGRAL = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
ENV = "env:[A-Za-z_][A-Za-z0-9_]{0,127}"
# The ARN of a secret or its path, which a URL, host:port and an ARN of something else are not.
SECRET = '(?=arn:aws[a-z-]*:secretsmanager:|(?!env:|arn:|.*://|[^/#]+:[0-9]+$))[!-"$-~]{1,512}'
# #key selects a field of a secret that is a JSON object.
KEY = "(#[!-~]{1,128})?"
Reference = Annotated[
    str, matches(f"({ENV}|{SECRET}){KEY}", "env:NAME, or the ARN or path of a secret")
]
Region = Annotated[
    str, matches("[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}", "an AWS region such as eu-west-1")
]


class Extensible(BaseModel):
    """A mapping with known and other fields. No field may be null."""

    model_config = ConfigDict(frozen=True, strict=True)

    @field_validator("*")
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise PydanticCustomError("null", "Input should not be null")
        return value


class Strict(Extensible):
    """A mapping with known fields only."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class SecretRef:
    """A reference, with the JSON field and the AWS region that a collection adds to it.

    `accepts` refuses values that cannot be what is `expected`.
    """

    reference: str
    key: str | None = None
    region: str | None = None
    path: tuple[str, ...] = field(default=(), compare=False)  # the field that holds the reference
    expected: str = field(default="a text", compare=False)
    accepts: Callable[[str], object] = field(default=bool, compare=False)


def missing_address(document: Document, name: str, status: str) -> Findings:
    """Report that a backend lacks the field with its address."""
    is_draft = status == "draft"
    hint = "add it before the status leaves draft" if is_draft else "only a draft may omit it"
    message = f"backend.{name} is missing: {hint}."
    yield document.finding("AML-W201" if is_draft else "AML-E201", message, "backend", name)
