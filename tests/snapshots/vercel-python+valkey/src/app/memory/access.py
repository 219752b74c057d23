"""How an endpoint that keeps a custom collection is called: its transport and credentials.

What concerns more than one field stands in `lint_access`.
"""

from typing import Annotated, Literal

from pydantic import Field

from .values import ENV, WHOLE, Closed, Milliseconds, Open, Region, matches

ARN = "arn:aws[a-z-]{0,10}:lambda:[a-z0-9-]{1,32}:[0-9]{1,20}:function:"
FUNCTION = "[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?"
HOST = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?"
URL = rf"https?://([A-Za-z0-9._~!$&'()*+,;=%:-]*@)?{HOST}(/[A-Za-z0-9._~:@!$&'()*+,;=%-]*)*"


class RetryPolicy(Closed):
    max_attempts: Annotated[int, WHOLE, Field(ge=1, le=100)] = 1
    on_status: list[Annotated[int, WHOLE, Field(ge=100, le=599)]] = Field(default=[])
    backoff_ms: Milliseconds = 100


class Credentials(Open):
    """How a caller proves who it is; `lint_access` knows which scheme and source take which."""

    scheme: Literal["none", "api-key", "bearer-token", "iam-role", "oauth2", "service-account"]
    header: Annotated[str, matches("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")] | None = None
    source: (
        Literal["env", "aws_secrets_manager", "gcp_secret_manager", "azure_key_vault"] | None
    ) = None
    name: Annotated[str, matches("[A-Za-z_][A-Za-z0-9_]{0,127}")] | None = None
    secret_id: Annotated[str, matches("[A-Za-z0-9/_+=.@:!-]{1,512}")] | None = None
    region: Region | None = None
    key: Annotated[str, matches("[!-~]{1,128}")] | None = None


class Transport(Closed):
    timeout_ms: Annotated[Milliseconds, Field(ge=1)] = 3000
    retry_policy: RetryPolicy = RetryPolicy()
    credentials: Credentials


class RestApi(Transport):
    type: Literal["rest-api"]
    base_url: Annotated[str, matches(f"(?=.{{1,2048}}$)({ENV}|{URL})")]


class Lambda(Transport):
    type: Literal["lambda"]
    function_arn: Annotated[str, matches(f"{ENV}|{ARN}{FUNCTION}")] | None = None
    provider: Literal["aws"] | None = None
    function_id: Annotated[str, matches(f"{ENV}|({ARN})?{FUNCTION}")] | None = None
    invocation_type: Literal["RequestResponse"] = "RequestResponse"
    payload_format: Literal["json"] = "json"
