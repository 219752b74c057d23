"""A custom backend in a Lambda function, which is called with the AWS SDK's own credentials."""

import asyncio
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from ..contract import describe
from .access import Lambda
from .backends import Unavailable
from .causes import LATE, UNSENT, cause_of, told
from .options import Options
from .transport import Answer, Transport, check_etag, parse, resolve

THREADS = 32  # of its own: threads that hang must not keep the model's from running


class LambdaTransport(Transport):
    """A function that finds the operation in its payload, and conditions of a save too."""

    def __init__(self, declared: Lambda, options: Options) -> None:
        self._function = resolve(declared.function_arn or declared.function_id or "")
        super().__init__(declared, f"Lambda function {self._function}")
        region = re.match("arn:[^:]*:lambda:([^:]+):", self._function)
        seconds, once = declared.timeout_ms / 1000, {"total_max_attempts": 1}
        self._limit = 8 * options.max_snapshot_bytes
        self._threads = ThreadPoolExecutor(THREADS, "lambda")
        try:
            self._client = boto3.session.Session().client(
                "lambda",
                region_name=region[1] if region else os.environ.get("AWS_REGION"),
                config=Config(
                    connect_timeout=seconds,
                    read_timeout=seconds,
                    retries=once,
                    max_pool_connections=THREADS,
                ),
            )
        except (BotoCoreError, ValueError) as error:
            why = cause_of(error) or describe(error)
            raise Unavailable(told(self.contact, why), is_certain=True) from None

    async def _send(self, request: dict[str, Any], match: str | None, none: str | None) -> Answer:
        conditions = {"if_match": match, "if_none_match": none}
        if request["operation"] == "save_snapshot":  # no answer to a load says "unchanged"
            request = request | {name: value for name, value in conditions.items() if value}
        loop, payload = asyncio.get_running_loop(), json.dumps(request).encode()
        return await loop.run_in_executor(self._threads, self._invoke, payload)

    def _invoke(self, payload: bytes) -> Answer:
        try:
            told = self._client.invoke(FunctionName=self._function, Payload=payload)
            body = told["Payload"].read(self._limit + 1)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            code = re.sub("[^A-Za-z]", "", str(error.response["Error"].get("Code")))[:64]
            return Answer(status, failure=f"{cause_of(None, code, status) or code} (HTTP {status})")
        except (BotoCoreError, OSError) as error:
            why = cause_of(error) or describe(error)
            if why == LATE:
                raise TimeoutError from None
            raise Unavailable(why, is_certain=why in UNSENT) from None
        if told.get("FunctionError"):
            return Answer(500, failure="the function failed")
        if len(body) > self._limit:
            raise Unavailable(f"an answer of more than {self._limit} bytes")
        try:
            value = parse(body)
        except ValueError:
            raise Unavailable("a payload that is no JSON") from None
        told_so = (value.get("ok"), value.get("error")) if isinstance(value, dict) else None
        if told_so == (False, "conflict"):
            return Answer(412)
        etag = check_etag(value.pop("etag", None)) if isinstance(value, dict) else None
        return Answer(200, value, etag, json.dumps(value).encode())

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False)
        self._client.close()
