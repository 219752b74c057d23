"""Tokens through AgentCore's authorizer, as the stack configures it, to the agent and its tools."""

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.auth.conftest import with_auth
from tests.auth.issuer import Issuer, new_key
from tests.auth.test_tokens import bearer, who_is
from tests.auth.test_vendors import TOKENS, USER, documented
from tests.conformance.client import SESSION
from tests.conformance.conftest import provider  # noqa: F401 (a fixture)
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS
from tests.deploy.authorizer import ACCESS_DENIED, UNAUTHORIZED, Authorizer
from tests.deploy.cloudformation import Stack
from tests.deploy.test_agentcore import IMAGE, USUAL

# The claim that has the audience in a vendor's tokens, and the claim that they do not have.
VENDORS = {"Amazon Cognito": ("client_id", "aud"), "Auth0": ("aud", "client_id")}
LONG_SESSION = "a-session-of-at-least-33-characters"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("name", USUAL)
def test_only_callers_that_the_stack_allows_reach_the_agent(
    name: str,
    vendor: str,
    provider: Provider,  # noqa: F811
    tmp_path: Path,
) -> None:
    (base,) = [it for it in TARGETS if it.name == name]
    target = with_auth(base)
    target = replace(target, answers=(*target.answers, ("deploy", "agentcore")))
    settings, (claim, other) = documented(vendor), VENDORS[vendor]
    stack = Stack(
        target.project(),
        Image=IMAGE,
        ModelUrl="https://models.example.com/v1",
        AuthIssuer=settings["AUTH_ISSUER"],
        AuthAudience=settings["AUTH_AUDIENCE"],
        AuthAudienceClaim=claim,
    )
    with ExitStack() as opened:
        issuer = opened.enter_context(Issuer())
        runtime, own = at_home(stack, settings["AUTH_ISSUER"], issuer)
        wanted = {it: v for it, v in runtime["EnvironmentVariables"].items() if "AUTH_" in it}
        server = Server(target, tmp_path, provider.origin, wanted)
        opened.callback(server.stop)
        authorizer = opened.enter_context(Authorizer(server, runtime))
        front = authorizer.front

        def token(audience: str = settings["AUTH_AUDIENCE"], **more: Any) -> dict[str, str]:
            text = json.dumps({"sub": USER, "iss": own, **TOKENS[vendor]})
            return bearer(issuer.token(**json.loads(text.replace("AUDIENCE", audience)) | more))

        assert who_is(front, provider, {**token(), "X-Other": "1"}, LONG_SESSION) == USER
        (headers,) = authorizer.forwarded
        passed = {name.lower() for name in headers}
        assert {SESSION.lower(), "authorization"} <= passed
        assert "x-other" not in passed
        elsewhere = {claim: None, other: settings["AUTH_AUDIENCE"]}
        refused: dict[int, list[dict[str, str]]] = {
            UNAUTHORIZED: [
                {},
                bearer("garbage"),
                token(exp=int(time.time()) - 300),
                token(key=new_key("RS256")),
                token(iss="https://elsewhere.example.com"),
            ],
            ACCESS_DENIED: [token("another"), token(**elsewhere)],
        }
        for status, requests in refused.items():
            for request in requests:
                assert front.post({"prompt": "Hello."}, request).status == status, request
        assert len(authorizer.forwarded) == 1


def at_home(stack: Stack, issued_by: str, issuer: Issuer) -> tuple[dict[str, Any], str]:
    """The runtime's properties with the issuer on loopback in place of `issued_by`; its name."""
    place = urlsplit(issued_by)
    public = f"{place.scheme}://{place.netloc}"
    text = json.dumps(stack.properties("Runtime"))
    runtime: dict[str, Any] = json.loads(text.replace(public, issuer.url))
    own = issued_by.replace(public, issuer.url)
    discovery = runtime["AuthorizerConfiguration"]["CustomJWTAuthorizer"]["DiscoveryUrl"]
    document = {"issuer": own, "jwks_uri": f"{issuer.url}/keys"}
    issuer.wrong = {urlsplit(discovery).path: (200, json.dumps(document).encode())}
    return runtime, own
