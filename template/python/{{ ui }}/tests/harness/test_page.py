"""The page: its files are complete, and a page for other machines needs a token."""

import re

from client import Client, run


async def test_the_page_and_its_files_need_no_token() -> None:
    client = Client(ui=1, api_token="sesame")
    page = await client.get("/")
    assert page.status == 200
    assert "<script" in page.text
    names = re.findall('(?:src|href)="([^"]+)"', page.text)
    assert names
    for name in names:  # and what these import
        file = await client.get(f"/{name}")
        assert file.status == 200, name
        assert file.text.strip(), name
        imported = re.findall(r"^import .* from '\./([^']+)'", file.text, re.MULTILINE)
        names += [module for module in imported if module not in names]


async def test_the_page_is_refused_under_a_foreign_host() -> None:
    client = Client(ui=1, api_token="sesame")
    page = await client.get("/", headers={"Host": "localhost.evil.example"})
    assert page.status == 403


async def test_without_the_setting_there_is_no_page() -> None:
    assert (await Client().get("/")).status == 404


def test_check_reports_a_page_for_other_machines_without_a_token() -> None:
    result = run("check", env={"HOST": "0.0.0.0", "UI": "1", "API_TOKEN": ""})
    assert "SET-UI" in result.output


def test_check_accepts_a_page_for_other_machines_with_a_token() -> None:
    result = run("check", env={"HOST": "0.0.0.0", "UI": "1", "API_TOKEN": "sesame"})
    assert "SET-UI" not in result.output
