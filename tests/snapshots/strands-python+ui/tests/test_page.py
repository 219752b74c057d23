"""The page: complete files that pass the checks, and other machines need a token."""

import re

from click.testing import CliRunner
from client import Client

from app.main import cli

HERE, ELSEWHERE = {"Host": "127.0.0.1:8080"}, {"Host": "localhost.evil.example"}


async def test_the_page_comes_without_a_token_and_only_from_here() -> None:
    client = Client(ui=1, api_token="sesame")
    status, _, page = await client.send("GET /", HERE, b"")
    assert (status, "<script" in page) == (200, True)
    for name in re.findall('(?:src|href)="([^"]+)"', page):
        status, _, text = await client.send(f"GET /{name}", HERE, b"")
        assert (status, text.strip() != "") == (200, True)
    assert (await client.send("GET /", ELSEWHERE, b""))[0] == 403
    assert (await Client().send("GET /", HERE, b""))[0] == 404


def test_a_page_for_other_machines_needs_a_token() -> None:
    environment = {"HOST": "0.0.0.0", "UI": "1", "API_TOKEN": ""}
    result = CliRunner().invoke(cli, ["check"], env=environment)
    assert "SET-UI" in result.output
    result = CliRunner().invoke(cli, ["check"], env={**environment, "API_TOKEN": "sesame"})
    assert "SET-UI" not in result.output
