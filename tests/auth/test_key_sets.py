"""Legal key sets, and the address of the key set."""

import json
from codecs import BOM_UTF8

import pytest

from tests.auth.issuer import Issuer, new_key
from tests.auth.test_tokens import bearer, refused, who_is
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.stores.servers import wait_for

WRONG = "its signature is wrong"


def test_legal_key_sets_are_accepted(fleet: Fleet, provider: Provider, own_issuer: Issuer) -> None:
    for id in ("first", "second", "null", "plain", "unnamed"):
        own_issuer.keys[id] = "RS256", new_key("RS256")
    keys = {id: own_issuer.public(id) for id in own_issuer.keys}
    unnamed = {name: value for name, value in keys["unnamed"].items() if name != "kid"}
    own_issuer.publish(
        keys["rs256"],
        keys["rs256"],
        {**keys["first"], "kid": "shared"},
        {**keys["second"], "kid": "shared"},
        {**keys["null"], "use": None, "alg": None, "key_ops": None},
        {"kid": "plain", **{name: keys["plain"][name] for name in ("kty", "n", "e")}},
        {**keys["es256"], "key_ops": ["verify"]},
        {**keys["eddsa"], "alg": "Ed25519"},
        {**unnamed, "use": "sig"},
        prefix=BOM_UTF8,
    )
    _, document = own_issuer.answer("/.well-known/openid-configuration")
    own_issuer.wrong["/.well-known/openid-configuration"] = (200, BOM_UTF8 + document)
    server = fleet.fresh(**own_issuer.environment)
    for token in (
        own_issuer.token("ada"),
        own_issuer.token("ada", "first", {"kid": "shared"}),
        own_issuer.token("ada", "second", {"kid": "shared"}),
        own_issuer.token("ada", "null"),
        own_issuer.token("ada", "plain"),
        own_issuer.token("ada", "es256"),
        own_issuer.token("ada", "eddsa"),
        own_issuer.eddsa({"alg": "Ed25519", "kid": "eddsa"}),
        own_issuer.eddsa({"alg": "EdDSA"}),
        *(own_issuer.token("ada", id, {"kid": None}) for id in ("rs256", "second", "unnamed")),
    ):
        assert who_is(server, provider, bearer(token)) == "ada", token

    stranger = new_key("RS256")
    jwk = {**keys["rs256"], "kid": "shared"}
    for head in ({"kid": "shared"}, {"kid": "shared", "jwk": jwk, "x5u": "http://127.0.0.1:9"}):
        reply = refused(server, bearer(own_issuer.token("ada", head=head, key=stranger)))
        assert (reply.status, WRONG in reply.headers["www-authenticate"]) == (401, True)


def test_keys_that_cannot_verify_tokens_are_not_used(fleet: Fleet, own_issuer: Issuer) -> None:
    for id in ("enc", "ops", "odd"):
        own_issuer.keys[id] = "RS256", new_key("RS256")
    keys = {id: own_issuer.public(id) for id in own_issuer.keys}
    own_issuer.publish(
        keys["es256"],
        {**keys["enc"], "use": "enc"},
        {**keys["ops"], "key_ops": ["encrypt"]},
        {**keys["odd"], "alg": "RS512"},
        {**keys["odd"], "kty": ["RSA"]},
        {**keys["odd"], "key_ops": "verify"},
    )
    server = fleet.fresh(**own_issuer.environment)
    for id in ("enc", "ops", "odd"):
        reply = refused(server, bearer(own_issuer.token("ada", id)))
        assert reply.status == 401
        assert "the issuer has no such key" in reply.headers["www-authenticate"]


@pytest.mark.full
def test_a_token_without_kid_survives_a_rotation_and_tries_few_keys(
    fleet: Fleet, provider: Provider, own_issuer: Issuer
) -> None:
    ids = [f"key-{number}" for number in range(25)]
    for id in ids:
        own_issuer.keys[id] = "ES256", new_key("ES256")
    tokens = {id: bearer(own_issuer.token("ada", id, {"kid": None})) for id in ids}
    own_issuer.publish(own_issuer.public("es256"))
    server = fleet.fresh(**own_issuer.environment)
    assert who_is(server, provider, bearer(own_issuer.token("ada", "es256"))) == "ada"
    own_issuer.publish(*map(own_issuer.public, ids))
    # The keys of the last read are not too recent when a token needs others.
    wait_for("the new keys", lambda: refused(server, tokens[ids[0]]).status == 200)
    assert who_is(server, provider, tokens[ids[19]]) == "ada"
    assert refused(server, tokens[ids[20]]).status == 401


def test_the_address_of_the_key_set_replaces_discovery(
    fleet: Fleet, provider: Provider, own_issuer: Issuer
) -> None:
    iss = "https://login.example.com/tenant/v2.0"
    document = {"issuer": "https://login.example.com/{tenantid}/v2.0"}
    own_issuer.wrong = {
        "/.well-known/openid-configuration": (200, json.dumps(document).encode()),
        "/elsewhere?policy=in": own_issuer.answer("/keys"),
    }
    uri = f"{own_issuer.url}/elsewhere?policy=in"
    server = fleet.fresh(**{**own_issuer.environment, "AUTH_ISSUER": iss, "AUTH_JWKS_URI": uri})
    assert who_is(server, provider, bearer(own_issuer.token("ada", iss=iss))) == "ada"
    assert {*own_issuer.asked} == {"/elsewhere?policy=in"}
    assert refused(server, bearer(own_issuer.token("ada"))).status == 401

    server = fleet.fresh(**own_issuer.environment)
    assert refused(server, bearer(own_issuer.token("ada"))).status == 503
    assert "names a different issuer; set AUTH_JWKS_URI if needed" in server.log
