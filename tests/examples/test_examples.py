"""Each example goes the way of an owner: from the last release to the working tree, offline."""

import signal
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from hooks import examples
from tests.conformance.client import ACTOR, JSON, SESSION
from tests.conftest import ROOT
from tests.examples.projects import (
    built,
    encyclopedia,
    fresh,
    lint,
    lived_in,
    replicas,
    run,
    target_of,
    updated,
)
from tests.installed import clean_environment
from tests.stores.servers import valkey_server
from tests.ui.chat_page import LOAD, Page, send, texts
from tests.updates.history import History
from tests.updates.own_tests import pass_once, tree_of
from tests.updates.own_tests import run as run_tests

NAMES = [
    name if name == "order-desk" else pytest.param(name, marks=pytest.mark.full)
    for name in examples.names(ROOT)
]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES)
def test_an_update_from_the_last_release_loses_nothing(name: str, history: History) -> None:
    project, wanted = tree_of(updated(history, name)), tree_of(fresh(history, name))
    assert project.keys() == wanted.keys()
    assert [path for path in project if project[path] != wanted[path]] == []


@pytest.mark.full
def test_the_order_desk_passes_the_tests_of_its_owner(history: History, tmp_path: Path) -> None:
    words = ("--ignore", "tests/harness")
    run_tests(tmp_path / "passed", updated(history, "order-desk"), "strands-python", *words)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_it_passes_its_tests(name: str, history: History) -> None:
    pass_once(history, target_of(name), updated(history, name))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_it_is_clean_for_its_linters_and_types(name: str, history: History, tmp_path: Path) -> None:
    project = lived_in(history, name, tmp_path)
    for command in lint(project):
        done = subprocess.run(
            command, cwd=project, env=clean_environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_check_finds_no_error(name: str, history: History, tmp_path: Path) -> None:
    assert "\n0 errors, " in "\n" + run(lived_in(history, name, tmp_path), "check")


def test_the_order_desk_shows_its_customers_their_orders_and_asks_before_a_refund(
    history: History, tmp_path: Path
) -> None:
    project = lived_in(history, "order-desk", tmp_path)
    refund = 'use refund_order: {"order_id": "1001", "reason": "It leaks."}'
    prompts = ["use look_up_order: 1003", "use look_up_order: 1001", refund, "n", refund, "y"]
    said = run(project, "chat", "--actor", "ada", typed="\n".join(prompts) + "\n")
    other, own, denied, approved = said.split("The tool answered: ")[1:]
    assert "no order 1003 of this customer" in other
    assert "a blue teapot" in own
    assert "is refunded" not in denied
    assert "Order 1001 is refunded" in approved


def test_the_cases_of_the_order_desk_pass(history: History, tmp_path: Path) -> None:
    said = run(lived_in(history, "order-desk", tmp_path), "eval")
    assert " 0 failed" in said


@pytest.mark.full
def test_team_notes_are_searched_and_findings_are_remembered_in_another_session(
    history: History, tmp_path: Path
) -> None:
    project = lived_in(history, "team-notes", tmp_path)

    def chat(actor: str, *prompts: str) -> str:
        return run(project, "chat", "--actor", actor, typed="\n".join(prompts) + "\n")

    kept = '{"finding": "A flow of 50 degrees will do.", "note": "heat-pumps"}'
    said = chat("ada", "I am planning a heat pump.", "use search_notes: heat pump")
    assert "heat-pumps: Heat pumps in old houses" in said
    chat("ada", f"use keep_finding: {kept}")
    remembered = chat("ada", "What am I planning?", "Which flow will do?")
    assert "I am planning a heat pump." in remembered
    assert "A flow of 50 degrees will do. (from the note heat-pumps)" in remembered
    assert "heat pump" not in chat("bob", "What am I planning?")


@pytest.mark.full
def test_a_page_gets_articles_of_the_research_assistant_as_objects_with_their_sources(
    history: History, tmp_path: Path
) -> None:
    project = lived_in(history, "research-assistant", tmp_path)
    with encyclopedia() as url, replicas(project, 1, ARTICLES_URL=url) as (server,):
        page = Page(server, {ACTOR: "ada"})
        (said,) = page.act(send("use look_up: Insulation"))
        parts = {part["type"]: part for part in said["read"]["parts"]}
        source = "https://encyclopedia.example/Insulation"
        article = {"title": "Insulation", "extract": "It keeps heat.", "url": source}
        assert parts["dynamic-tool"]["output"] == article
        assert parts["source-url"]["url"] == source
        assert parts["data-progress"]["data"] == {"title": "Insulation"}
        (loaded,) = page.act(LOAD)
        stored = {part["type"]: part for part in loaded["messages"][1]["parts"]}
        assert stored["dynamic-tool"]["output"] == article


@pytest.mark.full
def test_replicas_of_the_research_assistant_share_notes_links_and_the_limit_of_a_customer(
    history: History, tmp_path: Path
) -> None:
    project = lived_in(history, "research-assistant", tmp_path)
    settings = {
        "SHARE_SECRET": "a-secret-of-this-test",
        "BASE_PATH": "/research",
        "ACTOR_TURNS_PER_DAY": "2",
    }
    with (
        valkey_server(tmp_path / "notes") as (host, port),
        replicas(project, 2, NOTES_URL=f"valkey://{host}:{port}", **settings) as (one, two),
    ):
        ada = {**JSON, ACTOR: "ada", SESSION: "s"}
        path = "/research/invocations"
        one.send({"prompt": "use save_note: Roof first."}, ada, path=path).reply()
        read = two.send({"prompt": "use read_notes: {}"}, ada, path=path).reply()
        assert "Roof first." in read.json["reply"]
        assert two.send({"prompt": "Once more"}, ada, path=path).reply().error == "rate_limited"
        assert two.post({"prompt": "Hello"}, {**JSON, ACTOR: "bob"}).status == 200
        link = one.send(None, ada, path="/research/share/s").reply().json["path"]
        assert "Roof first." in two.get(link).body.decode()
        (session,) = two.get("/research/export", ada).json["sessions"]
        assert [turn["prompt"] for turn in session["turns"]] == [
            "use save_note: Roof first.",
            "use read_notes: {}",
        ]


@pytest.mark.full
def test_the_replicas_of_the_support_widget_share_the_conversation_of_a_page(
    history: History, tmp_path: Path
) -> None:
    project = lived_in(history, "support-widget", tmp_path)
    with replicas(project, 2) as (one, two):
        page = Page(one)
        (said,) = page.act(send("use search_help: How long do returns take?"))
        assert (
            "/help/returns: Return unused items within 30 days" in said["read"]["parts"][-1]["text"]
        )
        page.server = two
        loaded, said = page.act(LOAD, send("And delivery?"))
        assert len(loaded["messages"]) == 2
        assert said["read"]["metadata"]["turn"] == 2
        two.signal(signal.SIGKILL)
        page.server = one
        assert texts(page.history())[::2] == [
            "use search_help: How long do returns take?",
            "And delivery?",
        ]


@pytest.mark.full
def test_the_page_of_the_support_widget_tries_again_and_goes_on_when_it_is_loaded_again(
    history: History, browser: Browser, tmp_path: Path
) -> None:
    project = lived_in(history, "support-widget", tmp_path)
    built(history, project)
    with replicas(project, 1) as (server,):
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        host, port = server.address
        page.goto(f"http://{host}:{port}/")
        page.route("**/api/chat", lambda route: route.abort(), times=1)
        question = page.get_by_label("Your question")
        question.fill("use search_help: photo of a broken item")
        question.press("Enter")
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("The tool answered: /help/broken-items").wait_for()
        page.reload()
        messages = page.get_by_role("listitem")
        page.get_by_text("The tool answered: /help/broken-items").wait_for()
        assert messages.count() == 2
        assert errors == []
        page.close()
