"""The caller is the subject of a token, and only tokens of the issuer are valid."""

import json
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock, patch

import jwt
import pytest
from client import ACTOR, Client, Response
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from my_agent.harness.auth import keys

ISSUER = "https://issuer.example"
KEY = generate_private_key(SECP256R1())


@pytest.fixture(autouse=True)
def issuer() -> Iterator[None]:
    """Serve the metadata of the issuer, and then its keys."""
    public_key = {**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "1", "alg": "ES256"}
    metadata = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
    with patch.object(
        keys,
        "_get",
        AsyncMock(side_effect=[metadata, {"keys": [public_key]}]),
    ):
        yield


def token(subject: str, **claims: object) -> str:
    """Return a token of the issuer, with other claims where they are given."""
    usual = {"iss": ISSUER, "aud": "me", "sub": subject, "exp": time.time() + 60}
    return jwt.encode({**usual, **claims}, KEY, "ES256", headers={"kid": "1"})


def client_of(**settings: Any) -> Client:
    """Return a client of a server that accepts tokens of the issuer."""
    return Client(auth_issuer=ISSUER, auth_audience="me", **settings)


async def say(client: Client, token: str, *, session: str = "", actor: str = "") -> Response:
    """Send a prompt with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    if actor:
        headers[ACTOR] = actor
    return await client.say(session=session, headers=headers)


async def test_the_subject_of_the_token_owns_its_sessions() -> None:
    client = client_of()
    assert (await say(client, token("ada"), session="s")).turn == 1
    assert (await say(client, token("ada"), session="s", actor="ada")).turn == 2
    response = await say(client, token("bob"), session="s")
    assert response.status == 403
    assert response.error == "session_forbidden"


async def test_a_header_cannot_name_another_actor_than_the_token() -> None:
    client = client_of()
    await say(client, token("ada"), session="s")
    response = await say(client, token("bob"), session="s", actor="ada")
    assert response.status == 403
    assert response.error == "session_forbidden"


async def test_a_request_without_a_token_is_refused() -> None:
    response = await client_of().say()
    assert response.status == 401
    assert response.error == "unauthorized"


@pytest.mark.parametrize(
    "invalid",
    [
        pytest.param("a.b.c", id="no token"),
        pytest.param("", id="an empty token"),
        pytest.param(token("ada", exp=time.time() - 120), id="an expired token"),
        pytest.param(token("ada", aud="other"), id="a token for another audience"),
    ],
)
async def test_an_invalid_token_is_refused(invalid: str) -> None:
    response = await say(client_of(), invalid)
    assert response.status == 401
    assert response.error == "unauthorized"


async def test_an_actor_has_a_limit_of_turns() -> None:
    client = client_of(actor_turns_per_day=1)
    assert (await say(client, token("ada"))).status == 200
    limited = await say(client, token("ada"))
    assert limited.status == 429
    assert limited.error == "rate_limited"
    assert (await say(client, token("bob"))).status == 200


async def test_an_actor_has_a_limit_of_tokens() -> None:
    client = client_of(actor_tokens_per_day=1)
    assert (await say(client, token("ada"))).status == 200
    limited = await say(client, token("ada"))
    assert limited.status == 429
    assert limited.error == "rate_limited"
    assert len(client.model.requests) == 1
