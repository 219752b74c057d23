"""The public keys of a token issuer: from AUTH_JWKS_URI, or OpenID Connect Discovery 1.0."""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from ..deadline import time_limit
from ..log import describe
from .settings import LOOPBACK, PUBLIC, AuthSettings

log = logging.getLogger(__name__)
# Key types, their curves and the accepted algorithms. Excludes "none" and shared secrets.
# RFC 9864 renames EdDSA with the curve Ed25519 to Ed25519.
KINDS = (
    ("RSA", None, ("RS256",)),
    ("EC", "P-256", ("ES256",)),
    ("OKP", "Ed25519", ("EdDSA", "Ed25519")),
)
ALGORITHMS = tuple(name for _, _, names in KINDS for name in names)
SECONDS = 5  # for each of the two requests
FRESH_SECONDS = 600  # after this time, turns refresh the keys in the background
COOLDOWN_SECONDS = 5  # between the end of a refresh and the next
MAX_BYTES = 1_000_000
MAX_KEYS = 100
MAX_CANDIDATES = 20  # keys whose signature is checked for one token
MIN_RSA_BITS = 2048  # RFC 7518, section 3.3

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class IssuerUnavailable(Exception):
    """The keys of the issuer could not be read. The message gives the reason."""


class Key(NamedTuple):
    """A public key for signatures with one of `algorithms`; `id` is its `kid`."""

    id: str | None
    algorithms: tuple[str, ...]
    public_key: PublicKey


class Keys:
    """The keys of one issuer. While it is down, the last keys stay in use."""

    def __init__(self, settings: AuthSettings) -> None:
        self._issuer = settings.auth_issuer
        self._uri = settings.auth_jwks_uri
        self._keys: list[Key] = []
        self._read_at = self._tried_at = -float("inf")
        self._refreshing: asyncio.Task[None] | None = None

    async def candidates(self, id: str | None, algorithm: str) -> AsyncIterator[PublicKey]:
        """Yield the keys that may have signed a token with this `kid` and `alg`.

        If the caller needs more, read the keys again and yield the new candidates.
        Raises IssuerUnavailable if no keys were ever read.
        """
        read_at = self._read_at
        if self._keys and time.monotonic() - read_at > FRESH_SECONDS:
            self._start()
        for key in self._find(id, algorithm):
            yield key
        await self._refresh()
        if self._read_at != read_at:
            for key in self._find(id, algorithm):
                yield key

    async def read(self) -> None:
        """Read the keys. Raises IssuerUnavailable."""
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            uri = self._uri or await self._discover(client)
            candidates = (await _get(client, uri)).get("keys")
        values = candidates[:MAX_KEYS] if isinstance(candidates, list) else []
        keys = [key for key in map(_parse_key, values) if key]
        if not keys:
            raise IssuerUnavailable("the issuer has no key for RS256, ES256 or EdDSA")
        self._keys = keys
        self._read_at = time.monotonic()

    async def close(self) -> None:
        """Stop reading."""
        if self._refreshing:
            self._refreshing.cancel()

    def _find(self, id: str | None, algorithm: str) -> list[PublicKey]:
        """Return the keys for an algorithm. Without an id, any of them may be the right key."""
        return [
            key.public_key
            for key in self._keys
            if algorithm in key.algorithms and id in (None, key.id)
        ][:MAX_CANDIDATES]

    async def _discover(self, client: httpx.AsyncClient) -> str:
        """Return the `jwks_uri` of the issuer. Raises IssuerUnavailable."""
        place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = await _get(client, place)
        if metadata.get("issuer") != self._issuer:
            hint = "set AUTH_JWKS_URI if needed"
            raise IssuerUnavailable(f"{place} names a different issuer; {hint}")
        uri = str(metadata.get("jwks_uri"))
        if not self._is_allowed(uri):
            raise IssuerUnavailable(f"{place}: jwks_uri must be an https address")
        return uri

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


def _parse_key(value: Any) -> Key | None:
    """Return a key of a JSON Web Key Set (RFC 7517), or None if it cannot verify tokens.

    A member that is null counts as absent.
    """
    if not isinstance(value, dict):
        return None
    jwk = {name: member for name, member in value.items() if member is not None}
    kind = ["RSA", None] if jwk.get("kty") == "RSA" else [jwk.get("kty"), jwk.get("crv")]
    algorithms = next((names for kty, crv, names in KINDS if kind == [kty, crv]), None)
    if algorithms is None or jwk.get("alg", algorithms[0]) not in algorithms:
        return None
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list):
        return None
    if "verify" not in operations:
        return None
    public_members = {name: jwk[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in jwk}
    try:
        public_key: PublicKey = PyJWK(public_members, algorithms[0]).key
    except (PyJWTError, TypeError, ValueError):
        return None
    if isinstance(public_key, RSAPublicKey) and public_key.key_size < MIN_RSA_BITS:
        return None
    id = jwk.get("kid")
    return Key(id if isinstance(id, str) else None, algorithms, public_key)


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
        value = json.loads(body.decode("utf-8-sig"))  # some servers send a byte order mark
    except TimeoutError:
        raise IssuerUnavailable(f"{url}: no complete response within {SECONDS} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
        raise IssuerUnavailable(f"{url}: {describe(error)}") from None
    if not isinstance(value, dict):
        raise IssuerUnavailable(f"{url}: the response is not a JSON object")
    return value
