"""The page of an agent whose callers need tokens."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.auth.conftest import with_auth
from tests.auth.issuer import Issuer
from tests.auth.test_tokens import bearer, who_is
from tests.conformance.client import SESSION
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.targets import Target
from tests.ui.conftest import browser  # noqa: F401 (a fixture)
from tests.ui.visitor import Visitor


@pytest.fixture(scope="module")
def with_page(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    base = replace(target, variant=target.name, answers=(), agent=None)
    paged = with_auth(base, "ui")
    fleet = Fleet(paged, Path(tmp_path_factory.mktemp("page")), provider.origin)
    yield fleet
    fleet.stop()


def test_the_token_decides_the_visitor(
    browser: Browser,  # noqa: F811
    with_page: Fleet,
    provider: Provider,
    issuer: Issuer,
) -> None:
    server = with_page.fresh(UI=1, **issuer.environment)
    visitor = Visitor(browser, server, provider)
    dialog = visitor.page.get_by_role("dialog")
    visitor.type("Let me in.")
    for token in ("wrong", issuer.token("ada")):
        visitor.sees("This server asks for a token." if token == "wrong" else "does not accept")
        dialog.get_by_label("API_TOKEN").fill(token)
        dialog.get_by_role("button", name="Continue").click()
    visitor.committed(1)
    sent = [it.post_data for it in visitor.requests if it.url.endswith("/api/chat")]
    (session,) = {json.loads(data)["id"] for data in sent if data}
    visitor.leave()
    reply = server.post({"prompt": "Mine?"}, {**bearer(issuer.token("bob")), SESSION: session})
    assert reply.status == 403
    assert who_is(server, provider, bearer(issuer.token("ada")), session) == "ada"
