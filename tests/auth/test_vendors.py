"""The settings in docs/callers.md accept the access tokens that each vendor documents."""

import re
from typing import Any

import pytest

from tests.auth.issuer import Issuer
from tests.auth.test_tokens import bearer, refused, who_is
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conftest import ROOT

USER = "0f3d2a1b-1234-4321-8888-aaaabbbbcccc"
CLIENT = "another-client"
# The claims of a vendor's access token beside iss and exp; AUDIENCE stands for AUTH_AUDIENCE.
TOKENS: dict[str, dict[str, Any]] = {
    "Amazon Cognito": {"client_id": "AUDIENCE", "aud": None, "token_use": "access"},
    "Microsoft Entra": {"aud": "AUDIENCE", "oid": USER, "sub": "pairwise", "ver": "2.0"},
    "Azure AD B2C": {"aud": "AUDIENCE", "ver": "1.0", "tfp": "B2C_1_in", "azp": CLIENT},
    "Auth0": {"aud": ["AUDIENCE", "https://example.eu.auth0.com/userinfo"], "azp": CLIENT},
    "Okta": {"aud": "AUDIENCE", "uid": USER, "sub": "ada@example.com", "cid": CLIENT},
    "Keycloak": {"aud": ["AUDIENCE", "account"], "azp": CLIENT, "typ": "Bearer"},
}


def documented(vendor: str) -> dict[str, Any]:
    """The settings in the first block after the vendor's name."""
    text = (ROOT / "template" / "shared" / "docs" / "callers.md").read_text()
    block = re.search(r"(\n    AUTH_\w+=\S+)+\n", text.partition(f"**{vendor}**")[2])
    assert block, vendor
    return dict(line.strip().split("=", 1) for line in block[0].strip().splitlines())


@pytest.mark.parametrize("vendor", TOKENS)
def test_tokens_of_a_vendor_are_accepted_with_its_documented_settings(
    fleet: Fleet, provider: Provider, own_issuer: Issuer, vendor: str
) -> None:
    settings = documented(vendor)
    keys = f"{own_issuer.url}/keys"
    server = fleet.fresh(**{**settings, "AUTH_JWKS_URI": keys})
    own = {"iss": settings["AUTH_ISSUER"], "sub": USER, **TOKENS[vendor]}

    def token(audience: str) -> dict[str, str]:
        def fill(value: Any) -> Any:
            if isinstance(value, list):
                return [fill(item) for item in value]
            return audience if value == "AUDIENCE" else value

        return bearer(own_issuer.token(**{name: fill(value) for name, value in own.items()}))

    assert who_is(server, provider, token(settings["AUTH_AUDIENCE"])) == USER
    reply = refused(server, token("other" + "\n2026 forged" * 50))
    assert reply.status == 401
    assert "it is for a different audience" in reply.headers["www-authenticate"]
    [line] = [line for line in server.log.splitlines() if "does not list its audience" in line]
    assert line.endswith("its audience: other")
    assert "\n2026 forged" not in server.log
    assert server.log.count("2026 forged") < 20
