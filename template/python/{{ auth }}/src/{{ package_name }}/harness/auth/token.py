"""Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), and reads their actor."""

import json
import logging
import re
import time
from hashlib import sha256
from typing import Any

from jwt import PyJWS
from jwt.algorithms import OKPAlgorithm
from jwt.exceptions import InvalidSignatureError, PyJWTError

from ..contract import ACTOR_ID
from .keys import ALGORITHMS, Keys
from .settings import AuthSettings

log = logging.getLogger(__name__)
LEEWAY_SECONDS = 60  # allowed difference between clocks
MAX_LOGGED_CHARS = 200
MAX_NUMBER = 2**53  # the highest number that JSON parsers agree on (RFC 8259)
SIGNATURES = PyJWS()
if "Ed25519" not in SIGNATURES.get_algorithms():
    SIGNATURES.register_algorithm("Ed25519", OKPAlgorithm())
HASHED = "sha256-"
FORM = re.compile(r"([A-Za-z0-9_-]+\.){2}[A-Za-z0-9_-]*")  # without padding


class InvalidToken(Exception):
    """The token is rejected. The message gives the reason, and quotes nothing from the token."""


class Tokens:
    """Verifies the tokens of one issuer."""

    def __init__(self, settings: AuthSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys
        self._audiences = {*re.findall("[^, ]+", settings.auth_audience)}

    async def actor_of(self, token: str) -> str:
        """Return the actor of a token. Raises InvalidToken and IssuerUnavailable."""
        claims = await self._verify(token)
        name = self._settings.auth_actor_claim
        value = claims.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidToken(f"it has no claim {name}")
        return actor_id(value)

    async def _verify(self, token: str) -> dict[str, Any]:
        if not FORM.fullmatch(token):
            raise InvalidToken("it is not valid")
        try:
            text = (await self._read_payload(token)).decode("utf-8-sig")
            claims = json.loads(text, parse_constant=int)  # rejects NaN, which is not JSON
        except (PyJWTError, ValueError, RecursionError):
            raise InvalidToken("it is not valid") from None
        if not isinstance(claims, dict):
            raise InvalidToken("it is not valid")
        self._check(claims)
        self._check_audience(claims)
        return claims

    async def _read_payload(self, token: str) -> bytes:
        """Return the payload if a key of the issuer has signed it.

        Raises InvalidToken, IssuerUnavailable and PyJWTError.
        """
        head = SIGNATURES.get_unverified_header(token)
        algorithm = head.get("alg")
        if "crit" in head:
            raise InvalidToken("it is not valid")
        if algorithm not in ALGORITHMS:
            raise InvalidToken("its signature algorithm is not accepted")
        reason = "the issuer has no such key"
        async for key in self._keys.candidates(head.get("kid"), algorithm):
            try:
                payload: bytes = SIGNATURES.decode(token, key, [algorithm])
                return payload
            except InvalidSignatureError:
                reason = "its signature is wrong"
        raise InvalidToken(reason)

    def _check(self, claims: dict[str, Any]) -> None:
        """Check the issuer and the times. Raises InvalidToken.

        RFC 7519 defines times as numbers. FAPI 2.0 rejects `iat` in the future, like `nbf`.
        """
        if claims.get("iss") is None or claims.get("exp") is None:
            raise InvalidToken("it lacks exp or iss")
        if claims["iss"] != self._settings.auth_issuer:
            raise InvalidToken("it is from a different issuer")
        times = {name: claims[name] for name in ("exp", "iat", "nbf") if name in claims}
        if not all(type(it) in (int, float) and abs(it) < MAX_NUMBER for it in times.values()):
            raise InvalidToken("it is not valid")
        now = time.time()
        if times.pop("exp") <= now - LEEWAY_SECONDS:
            raise InvalidToken("it has expired")
        if any(it > now + LEEWAY_SECONDS for it in times.values()):
            raise InvalidToken("it is not valid yet")

    def _check_audience(self, claims: dict[str, Any]) -> None:
        """Compare the audience with AUTH_AUDIENCE. Raises InvalidToken."""
        # Some issuers, such as Amazon Cognito, put the client's id into access tokens instead.
        audience = claims.get("client_id") if claims.get("aud") is None else claims["aud"]
        values = audience if isinstance(audience, list) else [audience]
        names = [name for name in values if isinstance(name, str)]
        if self._audiences.isdisjoint(names):
            shown = ", ".join(names)[:MAX_LOGGED_CHARS] or "none"
            log.warning("rejected a token: AUTH_AUDIENCE does not list its audience: %s", shown)
            raise InvalidToken("it is for a different audience")


def actor_id(value: str) -> str:
    """Return a claim as an actor id: unchanged if valid, or else its SHA-256.

    A claim that looks like a hash is hashed too, so no claim can imitate the hash of another.
    """
    is_id = re.fullmatch(ACTOR_ID, value) and "/" not in value and not value.startswith(HASHED)
    return value if is_id else f"{HASHED}{sha256(value.encode('utf-8', 'replace')).hexdigest()}"
