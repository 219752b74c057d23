"""Callers are whom their tokens name, and nobody else."""

import json
import time
from typing import Any
from unittest.mock import AsyncMock, patch

import jwt
import pytest
from client import ACTOR, JSON, POST, SESSION, Client
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

ISSUER, KEY = "https://issuer.example", generate_private_key(SECP256R1())


@pytest.fixture(autouse=True)
def issuer() -> Any:
    public = json.loads(ECAlgorithm.to_jwk(KEY.public_key())) | {"kid": "1", "alg": "ES256"}
    answers = [{"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}, {"keys": [public]}]
    with patch("app.auth.keys._get", AsyncMock(side_effect=answers)):
        yield


def token(sub: str, **more: object) -> str:
    claims = {"iss": ISSUER, "aud": "me", "sub": sub, "exp": time.time() + 60, **more}
    return jwt.encode(claims, KEY, "ES256", headers={"kid": "1"})


async def ask(client: Client, sent: str | None, **headers: str) -> Any:
    given = {"Authorization": f"Bearer {sent}"} if sent else {}
    body = json.dumps({"prompt": "Hi"}).encode()
    status, _, text = await client.send(POST, {**JSON, **given, **headers}, body)
    return status, json.loads(text).get("error", {}).get("type")


def client_of(**settings: Any) -> Client:
    return Client(*["Yes."] * 9, auth_issuer=ISSUER, auth_audience="me", **settings)


async def test_a_session_belongs_to_whom_the_token_names() -> None:
    client = client_of()
    assert await ask(client, token("ada"), **{SESSION: "s"}) == (200, None)
    assert await ask(client, token("ada"), **{SESSION: "s", ACTOR: "ada"}) == (200, None)
    forbidden = (403, "session_forbidden")
    assert await ask(client, token("bob"), **{SESSION: "s"}) == forbidden
    assert await ask(client, token("bob"), **{SESSION: "s", ACTOR: "ada"}) == forbidden


async def test_what_is_no_token_of_the_issuer_is_refused() -> None:
    client = client_of()
    expired, other = token("ada", exp=time.time() - 120), token("ada", aud="other")
    for sent in (None, "a.b.c", expired, other, client.runtime.settings.api_token):
        assert await ask(client, sent) == (401, "unauthorized")


async def test_an_actor_that_has_used_up_its_turns_waits() -> None:
    client = client_of(actor_turns_per_day=1)
    assert await ask(client, token("ada")) == (200, None)
    assert await ask(client, token("ada")) == (429, "rate_limited")
    assert await ask(client, token("bob")) == (200, None)


async def test_an_actor_that_has_used_up_its_tokens_waits() -> None:
    client = client_of(actor_tokens_per_day=1)
    assert await ask(client, token("ada")) == (200, None)
    assert await ask(client, token("ada")) == (429, "rate_limited")
    assert len(client.model.calls) == 1
