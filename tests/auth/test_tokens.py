"""Which tokens are accepted, and who their callers are."""

import json
import re
import time
import uuid
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.auth.conftest import with_auth
from tests.auth.issuer import AUDIENCE, Issuer, encoded, new_key
from tests.conformance.chat import Chat
from tests.conformance.client import ACTOR, JSON, Reply
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call
from tests.conformance.targets import Target
from tests.stores.servers import wait_for

OTHER_ACTOR = "X-Amzn-Bedrock-AgentCore-Runtime-Custom-Actor-Id"
Headers = dict[str, str] | list[tuple[str, str]]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def who_is(server: Server, provider: Provider, headers: dict[str, str], session: str = "") -> str:
    """Whom a tool of the agent sees as the actor."""
    chat, text = Chat(server, provider, session or None), f"Whose {uuid.uuid4()}?"
    call = Call("my_orders", {"place": str(uuid.uuid4())})
    reply = chat.say(text, [call, call], ["Done."], headers=headers)
    assert reply.status == 200, reply
    _, result = chat.history(chat.calls(text)[-1])[-1]
    found = re.fullmatch(r"orders of (\S+) \S+ \d+ None", str(result))
    assert found, result
    return found[1]


def refused(server: Server, headers: Headers, body: object = None) -> Reply:
    return server.post(body or {"prompt": "Hello"}, headers)


def test_the_token_decides_the_caller(server: Server, provider: Provider, issuer: Issuer) -> None:
    now = int(time.time())
    for token, actor in (
        (issuer.token("ada"), "ada"),
        (issuer.token("ada", "es256"), "ada"),
        (issuer.token("ada", "eddsa"), "ada"),
        (issuer.token("bob", aud=["x", AUDIENCE]), "bob"),
        (issuer.token("bob", aud=None, client_id=AUDIENCE), "bob"),
        (issuer.token("bob", exp=now - 30, nbf=now + 30, iat=now + 30), "bob"),
        (issuer.token("auth0:42"), "auth0:42"),
    ):
        assert who_is(server, provider, bearer(token)) == actor
        assert who_is(server, provider, {**bearer(token), ACTOR: actor}) == actor
    # What is no actor id is hashed, and so is what looks like a hash.
    e_mail = f"sha256-{sha256(b'ada@example.com').hexdigest()}"
    for sub in ("ada@example.com", e_mail, "a/b", "ünï", "x" * 300):
        hashed = f"sha256-{sha256(sub.encode()).hexdigest()}"
        assert who_is(server, provider, bearer(issuer.token(sub))) == hashed


def test_a_header_cannot_name_another_actor(
    server: Server, provider: Provider, issuer: Issuer
) -> None:
    ada, bob = bearer(issuer.token("ada")), bearer(issuer.token("bob"))
    session = f"session-{uuid.uuid4()}"
    assert who_is(server, provider, ada, session) == "ada"
    of_ada = Chat(server, provider, session)
    for headers in (
        {**bob, ACTOR: "ada"},
        {**bob, OTHER_ACTOR: "ada"},
        {**bob, ACTOR.lower(): "ada"},
        {**bob, ACTOR: ""},
        {**bob, ACTOR: "bob", OTHER_ACTOR: "ada"},
    ):
        reply = of_ada.say("Hello", headers={**headers, **JSON})
        assert (reply.status, reply.json["error"]["type"]) == (403, "session_forbidden")
        assert reply.json["error"]["message"] == "A header names a different actor than the token."
    reply = of_ada.say("Hello", headers={**bob, **JSON})
    assert (reply.status, reply.json["error"]["type"]) == (403, "session_forbidden")
    assert of_ada.say("Again?", headers={**ada, **JSON}).turn == 2


def test_foreign_and_invalid_tokens_are_refused(server: Server, issuer: Issuer) -> None:
    now, stranger = int(time.time()), new_key("RS256")
    own = issuer.token("ada")
    head, _, signature = own.split(".")
    tokens = {
        "it is not valid": [
            issuer.token("ada", head={"crit": ["x"], "x": 1}),
            issuer.token("ada", head={"crit": ["b64"], "b64": True}),
            *(
                issuer.eddsa({"alg": "EdDSA", "kid": "eddsa"}, **{name: value})
                for name in ("exp", "iat", "nbf")
                for value in (str(now + 30), True, [now], 10**400)
            ),
            issuer.eddsa({"alg": "EdDSA", "kid": 7}),
            "garbage",
            "a.b.c",
            f"{own}==",
            f"{head}.{encoded({'sub': 'ada'})}",
            "x" * 9000,
        ],
        "its signature algorithm is not accepted": [
            issuer.unsigned("ada"),
            issuer.of_public_key("ada"),
        ],
        "its signature is wrong": [
            issuer.token("ada", key=stranger),
            f"{head}.{encoded(issuer.claims('bob'))}.{signature}",
            issuer.token("ada", head={"jku": "http://127.0.0.1:9/keys"}, key=stranger),
        ],
        KEY: [
            issuer.token("ada", head={"kid": "nobody"}),
            issuer.token("ada", head={"kid": "shared"}),
            issuer.token("ada", head={"kid": "es256"}),
        ],
        "it has expired": [issuer.token("ada", exp=now - 90)],
        "it is not valid yet": [
            issuer.token("ada", nbf=now + 90),
            issuer.token("ada", iat=now + 90),
        ],
        "it is from a different issuer": [issuer.token("ada", iss="https://example.com")],
        "it is for a different audience": [
            issuer.token("ada", aud="other"),
            issuer.token("ada", aud=None),
            issuer.token("ada", aud=None, client_id="other"),
            issuer.token("ada", aud="other", client_id=AUDIENCE),
            issuer.token("ada", aud="my-agent, others"),
        ],
        "it lacks exp or iss": [issuer.token("ada", exp=None), issuer.token("ada", iss=None)],
        "it has no claim sub": [issuer.token(None), issuer.token("")],
    }
    for why, given in tokens.items():
        for token in given:
            reply = refused(server, {**bearer(token), **JSON})
            assert reply.status == 401, (why, token, reply)
            said = reply.headers["www-authenticate"]
            reasons = (why, *LIKE) if why in ("it is not valid", KEY) else (why,)
            form = 'Bearer error="invalid_token", '
            form += 'error_description="The token is not accepted: {}."'
            assert said in [form.format(reason) for reason in reasons], (why, token, said)
            assert token not in server.log
    for headers in (
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": own},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {own} {own}"},
        [("Authorization", f"Bearer {own}"), ("Authorization", f"Bearer {own}")],
    ):
        reply = refused(server, headers)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), headers


KEY = "the issuer has no such key"
# What both languages may say of a token that is malformed in more than one way.
LIKE = (
    "it is not valid",
    "it is not valid yet",
    "its signature algorithm is not accepted",
    "its signature is wrong",
)


def test_ping_needs_no_token_and_all_else_does(server: Server, issuer: Issuer) -> None:
    assert server.get("/ping").status == 200
    assert server.get("/ping", bearer("stale.token.x")).status == 200
    assert refused(server, bearer(issuer.token("ada")), {"end_session": True}).status == 400
    for body in ({"prompt": "Hello"}, {"end_session": True}, {"fork": "a", "at_turn": 1}):
        assert refused(server, {}, body).status == 401


def test_keys_rotate_and_the_last_ones_serve_while_the_issuer_is_down(
    fleet: Fleet, provider: Provider, own_issuer: Issuer
) -> None:
    server = fleet.fresh(**own_issuer.environment)
    old = own_issuer.token("ada")
    assert who_is(server, provider, bearer(old)) == "ada"
    asked = len(own_issuer.asked)
    for _ in range(5):
        assert who_is(server, provider, bearer(own_issuer.token("ada", "es256"))) == "ada"
    assert len(own_issuer.asked) == asked, "the keys are cached"

    # Down, or lying, in every way: those who have a token of a known key notice nothing.
    for wrong in (
        {"/keys": (500, b"")},
        {"/keys": (200, b'{"keys": []}')},
        {"/keys": (200, b"[" * 100_000)},
        {"/keys": (302, b"")},
        {"/.well-known/openid-configuration": (200, b'{"issuer": "https://example.com"}')},
        {"/.well-known/openid-configuration": (200, b"<html>")},
    ):
        own_issuer.wrong = wrong
        reply = refused(server, bearer(own_issuer.token("ada", head={"kid": "nobody"})))
        assert reply.status == 401
        assert who_is(server, provider, bearer(old)) == "ada"
    own_issuer.wrong = {}

    # A new key is found, at once if nobody has just looked; what it replaces is refused.
    own_issuer.rotate("new")
    new = bearer(own_issuer.token("ada", "new"))
    wait_for("the new key", lambda: refused(server, {**new, **JSON}).status == 200)
    assert refused(server, bearer(old)).status == 401


@pytest.mark.full
def test_an_issuer_that_sends_a_byte_a_second_is_not_waited_for(
    fleet: Fleet, own_issuer: Issuer
) -> None:
    own_issuer.is_slow = True
    server = fleet.fresh(**own_issuer.environment)
    began = time.monotonic()
    reply = refused(server, bearer(own_issuer.token("ada")))
    assert (reply.status, reply.json["error"]["type"]) == (503, "server_busy")
    assert time.monotonic() - began < 9


@pytest.mark.full
def test_callers_share_one_wait_for_an_issuer_that_hangs(fleet: Fleet, own_issuer: Issuer) -> None:
    own_issuer.is_hung = True
    server = fleet.fresh(**own_issuer.environment)
    headers = [*bearer(own_issuer.token("ada")).items()]
    assert server.get("/ping").status == 200
    began, asked = time.monotonic(), len(own_issuer.asked)
    exchanges = [server.send({"prompt": "Hello."}, headers) for _ in range(4)]
    assert [exchange.reply().status for exchange in exchanges] == [503] * 4
    assert refused(server, headers).status == 503
    assert time.monotonic() - began < 9, "the next callers do not wait for a try of their own"
    assert len(own_issuer.asked) - asked == 1


def test_keys_are_read_where_an_issuer_may_be(fleet: Fleet, own_issuer: Issuer) -> None:
    _, keys = own_issuer.answer("/keys")
    port = own_issuer.server_address[1]
    for uri in (f"http://0.0.0.0:{port}/keys", f"data:application/json,{quote(keys)}"):
        value = json.dumps({"issuer": own_issuer.url, "jwks_uri": uri}).encode()
        own_issuer.wrong = {"/.well-known/openid-configuration": (200, value)}
        server = fleet.fresh(**own_issuer.environment)
        assert refused(server, bearer(own_issuer.token("ada"))).status == 503
        assert "jwks_uri must be an https address" in server.log
        assert "/keys" not in own_issuer.asked


def test_refusals_are_traced_and_readable_by_a_page(
    target: Target, provider: Provider, issuer: Issuer, tmp_path: Path
) -> None:
    page = "https://app.example"
    fleet = Fleet(with_auth(target, "tracing"), tmp_path, provider.origin)
    try:
        server = fleet.fresh(**issuer.environment, ALLOWED_ORIGINS=page)
        of_page = {"Origin": page, "Content-Type": "application/json"}
        bob = {**of_page, **bearer(issuer.token("bob"))}
        assert who_is(server, provider, bob) == "bob"
        for headers, status in (
            ({**bob, ACTOR: "ada"}, 403),
            ({**of_page, **bearer("x.y.z")}, 401),
        ):
            reply = refused(server, headers)
            assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (status, page)
            exposed = reply.headers["Access-Control-Expose-Headers"]
            assert {"Retry-After", "WWW-Authenticate"} < {*exposed.split(", ")}
    finally:
        fleet.stop()


def test_only_the_claim_of_the_actor_has_to_be_a_text(
    fleet: Fleet, provider: Provider, issuer: Issuer
) -> None:
    server = fleet.fresh(**issuer.environment, AUTH_ACTOR_CLAIM="name")
    token = issuer.token(7, jti=8, name="ada")
    assert who_is(server, provider, bearer(token)) == "ada"


@pytest.mark.full
def test_an_issuer_that_was_never_reached_is_asked_again(fleet: Fleet, own_issuer: Issuer) -> None:
    own_issuer.wrong = {"/keys": (503, b"")}
    server = fleet.fresh(**own_issuer.environment)
    token = bearer(own_issuer.token("ada"))
    reply = refused(server, token)
    assert (reply.status, reply.json["error"]["type"]) == (503, "server_busy")
    assert int(reply.headers["retry-after"]) >= 1
    assert server.get("/ping").status == 200
    assert "HTTP 503" in server.log
    own_issuer.wrong = {}
    wait_for("the keys", lambda: refused(server, {**token, **JSON}).status == 200)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AUTH_ISSUER": ""}, "AUTH_ISSUER is not set: with a model, `serve` needs it"),
        ({"AUTH_AUDIENCE": ""}, "AUTH_AUDIENCE is not set: tokens for other services would be"),
        ({"API_TOKEN": "x" * 40}, "Tokens of AUTH_ISSUER replace API_TOKEN"),
        ({"AUTH_ISSUER": "http://127.0.0.1.evil.com"}, "an https address"),
        *(
            pytest.param({"AUTH_ISSUER": issuer}, "an https address", marks=pytest.mark.full)
            for issuer in (
                *("http://example.com", "https://a@evil.com", "http://localhost:80@evil.com/"),
                "https://example.com/\nx",
            )
        ),
        ({"AUTH_JWKS_URI": "http://keys.internal/"}, "an https address"),
        ({"AUTH_AUDIENCE": ","}, "names with commas between them"),
    ],
)
def test_a_server_that_would_trust_anybody_does_not_start(
    fleet: Fleet, issuer: Issuer, settings: dict[str, str], message: str
) -> None:
    server = fleet.fresh(**{**issuer.environment, **settings})
    assert server.exit_code() == 1
    assert message in server.log
    assert "Traceback" not in server.log
