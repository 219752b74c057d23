"""Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), and reads their actor."""

import re
from hashlib import sha256
from typing import Any

import jwt
from jwt.exceptions import PyJWTError

from ..contract import ACTOR_ID
from .keys import ALGORITHMS, Keys
from .settings import AuthSettings

LEEWAY_SECONDS = 60  # allowed difference between clocks
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
            head = jwt.get_unverified_header(token)
            algorithm = head.get("alg")
            id = head.get("kid")
            if algorithm not in ALGORITHMS:
                raise InvalidToken("its signature algorithm is not accepted")
            key = await self._keys.find(id, algorithm)
            if key is None:
                raise InvalidToken("the issuer has no such key")
            # Only the actor's claim must be a string.
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._settings.auth_issuer,
                leeway=LEEWAY_SECONDS,
                options={
                    "require": ["exp", "iss"],
                    "verify_aud": False,
                    "verify_jti": False,
                    "verify_sub": False,
                },
            )
        except PyJWTError as error:
            raise InvalidToken(REASONS.get(type(error).__name__, "it is not valid")) from None
        # Some issuers, such as Amazon Cognito, put the client's id into access tokens instead.
        audience = claims.get("client_id") if claims.get("aud") is None else claims["aud"]
        names = audience if isinstance(audience, list) else [audience]
        if not self._audiences & {it for it in names if isinstance(it, str)}:
            raise InvalidToken("it is for a different audience")
        return claims


REASONS = {
    "ExpiredSignatureError": "it has expired",
    "ImmatureSignatureError": "it is not valid yet",
    "InvalidIssuerError": "it is from a different issuer",
    "InvalidSignatureError": "its signature is wrong",
    "MissingRequiredClaimError": "it lacks exp or iss",
}


def actor_id(value: str) -> str:
    """Return a claim as an actor id: unchanged if valid, or else its SHA-256.

    A claim that looks like a hash is hashed too, so no claim can imitate the hash of another.
    """
    is_id = re.fullmatch(ACTOR_ID, value) and "/" not in value and not value.startswith(HASHED)
    return value if is_id else f"{HASHED}{sha256(value.encode('utf-8', 'replace')).hexdigest()}"
