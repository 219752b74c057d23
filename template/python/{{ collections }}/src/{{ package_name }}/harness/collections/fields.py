"""Field types that several models share, and references to secrets."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

from .reader import Document, Findings


def satisfies(test: Callable[[Any], object], description: str) -> AfterValidator:
    """Require that a value passes a test; `description` names valid values in the error."""

    def check(value: Any) -> Any:
        if not test(value):
            raise PydanticCustomError(
                "form", "Input should be {description}", {"description": description}
            )
        return value

    return AfterValidator(check)


def matches(pattern: str, description: str) -> AfterValidator:
    """Require that the whole text matches a pattern."""
    return satisfies(re.compile(pattern).fullmatch, description)


# YAML's JSON schema also reads 5.0 as an integer.
INTEGRAL = BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
ENV = "env:[A-Za-z_][A-Za-z0-9_]{0,127}"
# The ARN or path of a secret, but not a URL, host:port or the ARN of another resource.
SECRET = '(?=arn:aws[a-z-]*:secretsmanager:|(?!env:|arn:|.*://|[^/#]+:[0-9]+$))[!-"$-~]{1,512}'
# #key selects a field of a JSON secret.
KEY = "(#[!-~]{1,128})?"
Reference = Annotated[
    str, matches(f"({ENV}|{SECRET}){KEY}", "env:NAME, or the ARN or path of a secret")
]
Region = Annotated[
    str, matches("[a-z]{2,4}(-[a-z]{2,12}){1,3}-[0-9]{1,2}", "an AWS region such as eu-west-1")
]


class Extensible(BaseModel):
    """A mapping that accepts unknown fields. No field may be null."""

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
    """A reference to a secret, with the JSON field and the AWS region from the collection.

    `accepts` is false for an invalid value; `expected` describes valid values in the error.
    """

    reference: str
    key: str | None = None
    region: str | None = None
    path: tuple[str, ...] = field(default=(), compare=False)  # the field that holds the reference
    expected: str = field(default="a text", compare=False)
    accepts: Callable[[str], object] = field(default=bool, compare=False)


def missing_address(document: Document, name: str, status: str) -> Findings:
    """Report that the address field of a backend is missing."""
    is_draft = status == "draft"
    hint = "add it before the status leaves draft" if is_draft else "only a draft may omit it"
    message = f"backend.{name} is missing: {hint}."
    yield document.finding("AML-W201" if is_draft else "AML-E201", message, "backend", name)
