"""Calls of a custom backend, over REST or of a Lambda function: with retries, and in time."""

import asyncio
import json
import os
import random
import re
from dataclasses import dataclass
from typing import Any

from . import access
from .backends import Unavailable
from .models import Collection
from .options import Options
from .secrets import Secrets

ETAG = "(?![*]$)[!-~]{1,256}"
UNREADABLE = object()  # the value of what is stored, by its ETag, and is no JSON


@dataclass(frozen=True)
class Answer:
    """What an endpoint answered; over Lambda too, its status is what HTTP would say."""

    status: int
    value: Any = None
    etag: str | None = None
    raw: bytes = b"null"
    retry_after: float = 0  # seconds
    failure: str = ""  # why this is no answer of the endpoint itself


class Transport:
    """One endpoint of the contract's six operations."""

    def __init__(self, declared: access.Transport, contact: str) -> None:
        self.contact = contact  # without secrets
        self._seconds, self._policy = declared.timeout_ms / 1000, declared.retry_policy

    async def call(
        self, request: dict[str, Any], match: str | None = None, none_match: str | None = None
    ) -> Answer:
        """Send one operation, with the conditions that HTTP calls If-Match and If-None-Match.

        The answer has the status 2xx, 304, 404, 409 or 412. All attempts together take at most
        max_attempts x timeout_ms. Raises Unavailable.
        """
        policy, now, is_certain = self._policy, asyncio.get_running_loop().time, True
        end = now() + policy.max_attempts * self._seconds
        for attempt in range(1, policy.max_attempts + 1):
            answer = None
            try:
                async with asyncio.timeout_at(min(now() + self._seconds, end)):
                    answer = await self._send(request, match, none_match)
                status, why = answer.status, answer.failure or f"HTTP {answer.status}"
                failure = Unavailable(why, is_certain=status // 100 == 4)
            except TimeoutError:
                failure = Unavailable(f"no answer within {self._seconds:g} s")
            except Unavailable as error:
                failure = error
            is_certain = is_certain and failure.is_certain
            pause = policy.backoff_ms / 1000 * 2 ** (attempt - 1) * random.uniform(0.5, 1)
            pause = max(pause, answer.retry_after if answer else 0)
            is_last = attempt == policy.max_attempts or now() + pause >= end
            if is_last or (answer and answer.status not in policy.on_status):
                break
            await asyncio.sleep(pause)
        is_told = answer and (answer.status // 100 == 2 or answer.status in {304, 404, 409, 412})
        if answer and is_told and not answer.failure:
            return answer
        what = f"{request['operation']} of {self.contact}: {failure}, attempt {attempt}"
        raise Unavailable(what, is_certain=is_certain)

    async def _send(self, request: dict[str, Any], match: str | None, none: str | None) -> Answer:
        raise NotImplementedError

    async def close(self) -> None:
        """Close what is open."""


def open_transport(collection: Collection, options: Options, secrets: Secrets | None) -> Transport:
    """The transport that a collection declares; without secrets it sends no credentials.

    Raises Unavailable when its address is missing or is none.
    """
    declared = getattr(collection.backend, "transport", None)
    if isinstance(declared, access.Lambda):
        from .lambda_transport import LambdaTransport

        return LambdaTransport(declared, options)
    if isinstance(declared, access.RestApi):
        from .rest_transport import RestTransport

        return RestTransport(declared, options, secrets)
    raise Unavailable(f"collection {collection.collection_id!r} has no transport", is_certain=True)


def resolve(reference: str) -> str:
    """The address itself, or the environment variable that `env:NAME` names."""
    if not reference.startswith("env:"):
        return reference
    name = reference.removeprefix("env:")
    if value := os.environ.get(name, "").strip():
        return value
    raise Unavailable(f"address {reference!r}: set {name}", is_certain=True)


def parse(body: bytes) -> Any:
    """The value of a JSON text, or raise ValueError."""
    try:
        return json.loads(body.decode(), parse_constant=int)  # which refuses NaN, as JSON does
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_etag(etag: Any) -> str | None:
    """An ETag that can be sent back; None when there is none. Raises Unavailable."""
    if etag is None or etag == "":
        return None
    if isinstance(etag, str) and re.fullmatch(ETAG, etag):
        return etag
    raise Unavailable("an ETag that is not 1 to 256 visible characters, or is *")
