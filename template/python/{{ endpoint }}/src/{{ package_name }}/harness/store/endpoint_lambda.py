"""Calls the `custom` backend as a Lambda function, with the AWS credentials of this process."""

import json
import os
import re
from functools import cached_property
from typing import Any

import httpx
from anyio import CapacityLimiter, to_thread
from boto3.session import Session
from botocore import exceptions
from botocore.config import Config

from ..log import describe
from .snapshot import parse

THREADS = 32  # a separate pool, so that hanging calls cannot block model calls
UNSENT = (
    exceptions.NoRegionError,
    exceptions.NoCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
)


class LambdaFunction(httpx.AsyncBaseTransport):
    """Answers HTTP requests by invoking a function with the payload `extensions["request"]`.

    The payload has the conditions of a save as `if_match` and `if_none_match`. The function returns
    the ETag as `etag`, and {"ok": false, "error": "conflict"} for 412.
    """

    def __init__(self, function: str, seconds: float, max_bytes: int) -> None:
        self._function = function
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._limiter = CapacityLimiter(THREADS)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Invoke the function. Raises httpx.HTTPStatusError for its errors and for AWS errors."""
        payload: dict[str, Any] = request.extensions["request"]
        if payload["operation"] == "save_snapshot":  # the contract has no "unchanged" for a load
            names = {"if_match": "If-Match", "if_none_match": "If-None-Match"}
            values = {name: request.headers.get(header) for name, header in names.items()}
            payload = payload | {name: value for name, value in values.items() if value}
        return await to_thread.run_sync(
            self._invoke, request, payload, abandon_on_cancel=True, limiter=self._limiter
        )

    async def aclose(self) -> None:
        if "_client" in self.__dict__:  # the client was used
            self._client.close()

    def _invoke(self, request: httpx.Request, payload: dict[str, Any]) -> httpx.Response:
        try:
            reply = self._client.invoke(
                FunctionName=self._function, Payload=json.dumps(payload).encode()
            )
            body: bytes = reply["Payload"].read(self._max_bytes + 1)
        except exceptions.ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            failure = httpx.Response(status)
            message = f"{describe(error)} HTTP {status}"
            raise httpx.HTTPStatusError(message, request=request, response=failure) from None
        except UNSENT as error:
            raise httpx.ConnectError("") from error
        except (exceptions.BotoCoreError, OSError) as error:
            raise httpx.ReadError("") from error
        if reply.get("FunctionError"):
            failure = httpx.Response(500)
            raise httpx.HTTPStatusError("the function failed", request=request, response=failure)
        value = parse(body)
        if not isinstance(value, dict):
            return httpx.Response(200, content=body)
        if (value.get("ok"), value.get("error")) == (False, "conflict"):
            return httpx.Response(412)
        etag = value.pop("etag", None)
        headers = {} if etag is None else {b"ETag": str(etag).encode()}
        return httpx.Response(200, headers=headers, content=json.dumps(value).encode())

    @cached_property
    def _client(self) -> Any:
        region = re.match("arn:[^:]*:lambda:([^:]+):", self._function)
        config = Config(
            connect_timeout=self._seconds,
            read_timeout=self._seconds,
            retries={"total_max_attempts": 1},
            max_pool_connections=THREADS,
        )
        # boto3 reads only AWS_DEFAULT_REGION, but AWS runtimes set AWS_REGION.
        name = region[1] if region else os.environ.get("AWS_REGION")
        return Session().client("lambda", region_name=name, config=config)
