"""The public keys of a token issuer, from OpenID Connect Discovery 1.0."""

import asyncio
import json
import logging
import re
import time
from typing import Any

import httpx
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from ..deadline import time_limit
from ..log import describe
from .settings import LOOPBACK, PUBLIC

log = logging.getLogger(__name__)
ALGORITHMS = ("RS256", "ES256", "EdDSA")  # excludes "none" and shared secrets
SECONDS = 5  # for each of the two requests
FRESH_SECONDS = 600  # after this time, turns refresh the keys in the background
COOLDOWN_SECONDS = 5  # between the end of a refresh and the next
MAX_BYTES = 1_000_000
MAX_KEYS = 100


class IssuerUnavailable(Exception):
    """The keys of the issuer could not be read. The message gives the reason."""


class Keys:
    """The keys of one issuer. While it is down, the last keys stay in use."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: list[PyJWK] = []
        self._read_at = self._tried_at = -float("inf")
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, id: str | None, algorithm: str) -> PyJWK | None:
        """Return the key with this id; without an id, return the only key.

        Raises IssuerUnavailable if no keys were ever read.
        """
        key = self._find(id, algorithm)
        if key is None:
            await self._refresh()
            key = self._find(id, algorithm)
        elif time.monotonic() - self._read_at > FRESH_SECONDS:
            self._start()
        return key

    async def read(self) -> None:
        """Read the keys. Raises IssuerUnavailable."""
        place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            metadata = await _get(client, place)
            if metadata.get("issuer") != self._issuer:
                raise IssuerUnavailable(f"{place} names a different issuer")
            uri = str(metadata.get("jwks_uri"))
            if not self._is_allowed(uri):
                raise IssuerUnavailable(f"{place}: jwks_uri must be an https address")
            candidates = (await _get(client, uri)).get("keys")
        keys: list[PyJWK] = []
        for value in candidates[:MAX_KEYS] if isinstance(candidates, list) else []:
            try:
                if value.get("use", "sig") == "sig":
                    keys.append(PyJWK(value))
            except (PyJWTError, AttributeError, TypeError, ValueError):
                continue  # an unsupported kind of key
        if not any(key.algorithm_name in ALGORITHMS for key in keys):
            raise IssuerUnavailable("the issuer has no key for RS256, ES256 or EdDSA")
        self._keys = keys
        self._read_at = time.monotonic()

    async def close(self) -> None:
        """Stop reading."""
        if self._refreshing:
            self._refreshing.cancel()

    def _find(self, id: str | None, algorithm: str) -> PyJWK | None:
        keys = [key for key in self._keys if key.algorithm_name == algorithm]
        if id is not None:
            keys = [key for key in keys if key.key_id == id]
        return keys[0] if len(keys) == 1 else None

    def _is_allowed(self, uri: str) -> bool:
        """Whether to read keys from this address: as for AUTH_ISSUER, but it may have a query."""
        address = uri.partition("?")[0]
        is_here = self._issuer.startswith("http:") and re.fullmatch(LOOPBACK, address)
        return bool(is_here or re.fullmatch(PUBLIC, address)) and not re.search(r"[\s#]", uri)

    async def _refresh(self) -> None:
        """Read the keys, unless the last attempt was recent. All callers await the same attempt."""
        self._start()
        if self._refreshing:
            await asyncio.shield(self._refreshing)
        if not self._keys:
            raise IssuerUnavailable("its keys have never been read")

    def _start(self) -> None:
        is_due = time.monotonic() - self._tried_at > COOLDOWN_SECONDS
        if self._refreshing is None and is_due:
            self._refreshing = asyncio.create_task(self._try())

    async def _try(self) -> None:
        try:
            await self.read()
        except IssuerUnavailable as error:
            log.warning("the keys of AUTH_ISSUER were not read: %s", error)
        finally:
            self._tried_at = time.monotonic()
            self._refreshing = None


async def _get(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Return the JSON object at an address. Raises IssuerUnavailable."""
    try:
        async with time_limit(SECONDS), client.stream("GET", url) as answer:
            if answer.status_code != 200:
                raise IssuerUnavailable(f"{url}: HTTP {answer.status_code}")
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise IssuerUnavailable(f"{url}: the response exceeds {MAX_BYTES} bytes")
        value = json.loads(body)
    except TimeoutError:
        raise IssuerUnavailable(f"{url}: no complete response within {SECONDS} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
        raise IssuerUnavailable(f"{url}: {describe(error)}") from None
    if not isinstance(value, dict):
        raise IssuerUnavailable(f"{url}: the response is not a JSON object")
    return value
