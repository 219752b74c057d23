"""Fields and checks of a collection that stores sessions at your own endpoint."""

import os
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from ..settings import is_plain_http
from .fields import ENV, INTEGRAL, Region, SecretRef, Strict, matches, missing_address
from .reader import Document, Findings

ARN = "arn:aws[a-z-]{0,10}:lambda:[a-z0-9-]{1,32}:[0-9]{1,20}:function:"
FUNCTION = "[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?"
HOST = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?"
URL = rf"https?://{HOST}(/[A-Za-z0-9._~:@!$&'()*+,;=%/-]*[A-Za-z0-9._~:@!$&'()*+,;=%-])?"

BaseUrl = Annotated[
    str,
    matches(
        f"(?=.{{1,2048}}$)({ENV}|{URL})",
        "env:NAME, or an http(s) URL without user, query, fragment and final slash",
    ),
]
FunctionArn = Annotated[str, matches(f"{ENV}|{ARN}{FUNCTION}", "env:NAME or the ARN of a function")]
FunctionId = Annotated[
    str, matches(f"{ENV}|({ARN})?{FUNCTION}", "env:NAME, or the name or ARN of a function")
]
HeaderName = Annotated[str, matches("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", "the name of a header")]
VariableName = Annotated[str, matches("[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a variable")]
SecretId = Annotated[str, matches("[A-Za-z0-9/_+=.@:!-]{1,512}", "the name or ARN of a secret")]
JsonKey = Annotated[str, matches("[!-~]{1,128}", "the name of a field in a JSON secret")]
Milliseconds = Annotated[int, INTEGRAL, Field(ge=0, le=900_000)]

TRANSPORT = ("backend", "transport")
CREDENTIALS = (*TRANSPORT, "credentials")
SCHEMES = {"rest-api": ("none", "api-key", "bearer-token"), "lambda": ("iam-role",)}
# Required fields by scheme. Allowed fields by source; the first is required.
SCHEME_FIELDS = {"api-key": ("header", "source"), "bearer-token": ("source",)}
SOURCE_FIELDS = {"env": ("name", "key"), "aws_secrets_manager": ("secret_id", "region", "key")}


def resolve(address: str) -> str:
    """Return the address itself, or the value of the variable in `env:NAME`."""
    is_variable = address.startswith("env:")
    return os.environ.get(address[4:], "").strip() if is_variable else address


def is_service_url(address: str) -> bool:
    """Return whether an address is the http or https URL of a service."""
    try:
        url = urlsplit(address)
        is_invalid = not url.hostname or url.query or url.fragment or url.port == 0
    except ValueError:
        return False
    return not is_invalid and url.scheme in {"http", "https"}


IS_URL: dict[str, Any] = {
    "expected": "the http:// or https:// address of a service",
    "accepts": is_service_url,
}


class RetryPolicy(Strict):
    max_attempts: Annotated[int, INTEGRAL, Field(ge=1, le=100)] = 1  # includes the first
    on_status: list[Annotated[int, INTEGRAL, Field(ge=100, le=599)]] = Field(default=[])
    backoff_ms: Milliseconds = 100


class Credentials(Strict):
    """The authentication of requests; `_credentials` checks the fields of each scheme."""

    scheme: Literal["none", "api-key", "bearer-token", "iam-role"]
    source: Literal["env", "aws_secrets_manager"] | None = None
    header: HeaderName | None = None
    name: VariableName | None = None
    secret_id: SecretId | None = None
    region: Region | None = None
    key: JsonKey | None = None


class Transport(Strict):
    timeout_ms: Annotated[Milliseconds, Field(ge=1)] = 3000
    retry_policy: RetryPolicy = RetryPolicy()
    credentials: Credentials


class RestTransport(Transport):
    type: Literal["rest-api"]
    base_url: BaseUrl

    def addresses(self) -> dict[str, str]:
        """Return the address of the endpoint, by field."""
        return {"base_url": self.base_url}

    def is_exposed(self) -> bool:
        """Return whether credentials travel over plain http to another host."""
        address = resolve(self.base_url)
        return is_plain_http(address) and (self.credentials.scheme != "none" or "@" in address)


class LambdaTransport(Transport):
    type: Literal["lambda"]
    function_arn: FunctionArn | None = None
    provider: Literal["aws"] | None = None
    function_id: FunctionId | None = None
    invocation_type: Literal["RequestResponse"] = "RequestResponse"
    payload_format: Literal["json"] = "json"

    def addresses(self) -> dict[str, str]:
        """Return the name or ARN of the function, by field."""
        names = {"function_arn": self.function_arn, "function_id": self.function_id}
        return {name: value for name, value in names.items() if value is not None}


class CustomConfig(Strict):
    type: Literal["custom"]
    transport: Annotated[RestTransport | LambdaTransport, Field(discriminator="type")] | None = None

    def secret_refs(self) -> list[SecretRef]:
        """Return the references to resolve before the collection is used."""
        if self.transport is None:
            return []
        refs = [
            SecretRef(address, path=(*TRANSPORT, name), **IS_URL if name == "base_url" else {})
            for name, address in self.transport.addresses().items()
            if address.startswith("env:")
        ]
        credentials = self.transport.credentials
        if credentials.source == "env" and credentials.name:
            reference = f"env:{credentials.name}"
            path = (*CREDENTIALS, "name")
            refs.append(SecretRef(reference, credentials.key, path=path))
        elif credentials.source and credentials.secret_id:
            reference = credentials.secret_id
            path = (*CREDENTIALS, "secret_id")
            refs.append(SecretRef(reference, credentials.key, credentials.region, path))
        return refs

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check combinations of fields."""
        if lifetime == "session":
            message = "custom does not support lifetime session: use valkey or s3."
            yield document.finding("AML-E043", message, "backend", "type")
        if self.transport is None:
            yield from missing_address(document, "transport", status)
            return
        for name, address in self.transport.addresses().items():
            if not address.startswith("env:"):
                message = "This address is the same in all environments: use env:NAME."
                yield document.finding("AML-W224", message, *TRANSPORT, name)
        if isinstance(self.transport, LambdaTransport):
            yield from _function_name(document, self.transport)
        elif self.transport.is_exposed():
            message = "Credentials travel over plain http to another host: use https."
            yield document.finding("AML-W226", message, *TRANSPORT, "base_url")
        yield from _credentials(document, self.transport.credentials, self.transport.type)


def _function_name(document: Document, transport: LambdaTransport) -> Findings:
    has_arn = transport.function_arn is not None
    parts = [transport.provider is not None, transport.function_id is not None]
    if not has_arn and not all(parts):
        message = "The function is not named: add function_arn, or provider and function_id."
        yield document.finding("AML-E0B1", message, *TRANSPORT)
    if has_arn and any(parts):
        message = "The function is named twice: keep either function_arn, "
        yield document.finding("AML-E0B2", message + "or provider and function_id.", *TRANSPORT)


def _credentials(document: Document, credentials: Credentials, transport: str) -> Findings:
    scheme = credentials.scheme
    source = None
    if scheme not in SCHEMES[transport]:
        supported = "iam-role" if transport == "lambda" else "none, api-key or bearer-token"
        message = f"A {transport} transport does not support scheme {scheme}: use {supported}."
        yield document.finding("AML-E098", message, *CREDENTIALS, "scheme")
        return
    needed = SCHEME_FIELDS.get(scheme, ())
    allowed = {"scheme", *needed}
    if "source" in needed and (source := credentials.source):
        needed += SOURCE_FIELDS[source][:1]
        allowed |= {*SOURCE_FIELDS[source]}
    for name in needed:
        if getattr(credentials, name) is None:
            yield document.finding("AML-E09C", f"The credentials lack {name}.", *CREDENTIALS, name)
    if "source" in needed and source is None:
        return  # the other fields depend on the source
    for name in credentials.model_fields_set - allowed:
        message = f"{name} does not apply to this scheme and source: delete it."
        yield document.finding("AML-E0A5", message, *CREDENTIALS, name)
