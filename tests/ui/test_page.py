"""The page of `serve --ui` in a real browser, with the failures of the conformance suite."""

import json
import re
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.conformance.prompt_cache import Usage
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, DROP, HANG, Call, End, Hold, Refuse, Step, Think
from tests.conformance.targets import TARGETS, Target
from tests.installed import installed, packages
from tests.support.rows import collected
from tests.ui.visitor import Visitor

# The page is the same in all, and test_chat_route tries each server: once in a usual run.
USUAL = {"strands-python"}
PAGES = [
    replace(target, variant=f"{target.name}+ui", answers=(("model", "openai-compatible"),))
    for target in TARGETS
]
IMAGE = "<img src=x onerror=alert(1)>"
FAILURES: dict[str, tuple[str, Step]] = {
    "refused": ("model_failed", [Refuse(400)]),
    "dropped": ("model_failed", [DROP]),
    "cut": ("model_failed", ["Well, ", CUT]),
    "empty": ("empty_reply", [" "]),
    "unfinished": ("reply_incomplete", ["Well, ", End("length")]),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for each target; what only the page decides is tried with the first."""
    if "target" in metafunc.fixturenames:
        targets = PAGES[:1] if metafunc.definition.get_closest_marker("page_only") else PAGES
        rows = [pytest.param(target, id=target.name, marks=marks_of(target)) for target in targets]
        rows = collected(metafunc.config, rows)
        metafunc.parametrize("target", rows, indirect=True, scope="module")


def marks_of(target: Target) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if target.name in USUAL else [pytest.mark.slow, pytest.mark.full]


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared(UI=1)


@pytest.mark.full
def test_a_conversation_goes_on_and_says_how_each_turn_ended(
    visitor: Visitor, provider: Provider
) -> None:
    provider.usage = Usage(1, read=2)
    visitor.say("My name is Ada.", ["Hello, ", "**Ada**."])
    visitor.committed(1)
    provider.usage = Usage()
    expect(visitor.page.locator(".markdown strong")).to_have_text("Ada")
    expect(visitor.page.locator(".outcome")).to_contain_text("3 tokens in (2 cached), 1 out")
    visitor.page.get_by_label("Message").fill("What is")
    visitor.page.keyboard.press("Shift+Enter")
    visitor.page.keyboard.type("my name?")
    visitor.page.keyboard.press("Enter")
    visitor.committed(2)
    call = provider.calls_for("What is\nmy name?")[-1]
    assert [text for _, text, *_ in call.history[-3:]] == [
        *("My name is Ada.", "Hello, **Ada**.", "What is\nmy name?")
    ]
    link = visitor.page.get_by_role("link", name="My name is Ada.")
    expect(link).to_have_attribute("aria-current", "page")
    expect(link).to_contain_text("2 turns")


def test_a_reply_is_shown_while_it_arrives(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Tell me slowly.", ["It begins", Hold(gate), " and ends."])
    visitor.sees("It begins")
    expect(visitor.page.locator("article[aria-busy=true]")).to_have_count(1)
    log = visitor.page.get_by_role("log", name="Prompts and replies")
    expect(log).to_have_attribute("aria-busy", "true")
    gate.set()
    visitor.sees("It begins and ends.")
    visitor.committed(1)
    expect(visitor.page.locator("article[aria-busy=true]")).to_have_count(0)
    expect(log).to_have_attribute("aria-busy", "false")


def test_a_tool_call_folds_out(visitor: Visitor) -> None:
    steps: list[Step] = [["Let me see. ", Call("word_count", {"text": "a b c"})], ["Three."]]
    visitor.say("How many words?", *steps)
    visitor.committed(1)
    for _ in ("as it arrived", "as it was read"):
        tool = visitor.page.locator("details.tool")
        expect(tool.get_by_label("Result")).to_be_hidden()
        tool.get_by_text("word_count").click()
        expect(tool.get_by_label("Input")).to_contain_text('"a b c"')
        expect(tool.get_by_label("Result")).to_have_text("3")
        texts = visitor.page.locator(".markdown").all_text_contents()
        assert [text.strip() for text in texts] == ["Let me see.", "Three."]
        visitor.page.reload()


def test_reasoning_folds_out_with_its_duration(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Think.", [Think("I wonder <b>why"), Hold(gate), Think(" it rains."), "Clouds."])
    reasoning = visitor.page.locator("details.reasoning")
    expect(reasoning.locator("summary")).to_have_text("Thinking")
    gate.set()
    visitor.committed(1)
    expect(reasoning.locator("summary")).to_have_text(re.compile(r"^Thought for [0-9.]+ m?s$"))
    expect(reasoning.locator("p")).to_be_hidden()
    reasoning.locator("summary").focus()
    visitor.page.keyboard.press("Enter")
    expect(reasoning.locator("p")).to_have_text("I wonder <b>why it rains.")
    visitor.page.reload()
    visitor.sees("Clouds.")
    expect(reasoning).to_have_count(0)


def test_stopped_reasoning_has_a_duration(visitor: Visitor) -> None:
    visitor.say("Think.", [Think("I wonder."), CUT])
    expect(visitor.failed("model_failed")).to_be_visible()
    summary = visitor.page.locator("details.reasoning summary")
    expect(summary).to_have_text(re.compile("^Thought for "))


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_turn_leaves_the_session_unchanged(
    visitor: Visitor, server: Server, failure: str
) -> None:
    type, step = FAILURES[failure]
    visitor.say(f"First, {failure}.")
    visitor.committed(1)
    visitor.say(f"Then {failure}.", step)
    expect(visitor.failed(type)).to_be_visible()
    assert len(visitor.kept(server)) == 2
    visitor.provider.script(f"Then {failure}.", ["It works."])
    visitor.try_again()
    visitor.committed(2)
    first, *again = [body["messages"][0]["id"] for body in visitor.posted[1:]]
    assert again == [first]
    assert visitor.kept(server)[2:] == [f"Then {failure}.", "It works."]
    expect(visitor.page.locator(".failure, .failed")).to_have_count(0)


def test_a_turn_that_takes_too_long(browser: Browser, fleet: Fleet, provider: Provider) -> None:
    visitor = Visitor(browser, fleet.shared(UI=1, TURN_TIMEOUT_SECONDS=1), provider)
    visitor.say("Take your time.", ["Well, ", HANG], ["Now."])
    visitor.failed("turn_timeout")
    visitor.try_again()
    visitor.committed(1)
    visitor.leave()


def test_a_server_without_room(browser: Browser, fleet: Fleet, provider: Provider) -> None:
    server, gate = fleet.shared(UI=1, MAX_TURNS=1), threading.Event()
    provider.script("Stay.", ["Yes, ", Hold(gate)])
    other = server.send({"prompt": "Stay."})
    other.event()
    visitor = Visitor(browser, server, provider)
    visitor.say("Is there room?")
    visitor.failed("server_busy")
    gate.set()
    other.reply()
    visitor.try_again()
    visitor.committed(1)
    visitor.leave()


def test_stop_keeps_nothing(visitor: Visitor, server: Server, provider: Provider) -> None:
    visitor.say("Never end.", ["On and on", HANG])
    visitor.sees("On and on")
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.failed("Stopped")
    call = provider.calls_for("Never end.")[-1]
    provider.wait("an end of the call", lambda: call.outcome == "gone")
    assert visitor.kept(server) == []
    provider.script("Never end.", ["It ends."])
    visitor.try_again()
    visitor.committed(1)


@pytest.mark.parametrize("how", ["stopped", "lost"])
def test_a_turn_whose_reply_never_came_is_shown_if_it_was_kept(
    visitor: Visitor, server: Server, provider: Provider, how: str
) -> None:
    def lose(route: Route) -> None:
        route.fetch()  # the server has committed the turn
        if how == "lost":
            route.abort()

    visitor.page.route(lambda url: url.endswith("/api/chat"), lose)  # not the history
    with visitor.page.expect_request("**/api/chat"):
        visitor.say("Are you sure?")
    if how == "stopped":
        provider.wait("the turn", lambda: bool(visitor.kept(server)))
        visitor.page.get_by_role("button", name="Stop").click()
    visitor.committed(1)
    expect(visitor.page.locator(".failure")).to_have_count(0)
    assert len(visitor.kept(server)) == 2


def test_the_kept_part_survives_a_reload(visitor: Visitor) -> None:
    visitor.say("Remember me.")
    visitor.committed(1)
    visitor.say("This fails.", [Refuse(400)])
    visitor.failed("model_failed")
    visitor.page.reload()
    visitor.sees("You said: Remember me.")
    visitor.committed(1)
    visitor.failed("model_failed")  # so that it can be tried again
    expect(visitor.page.locator(".user p")).to_have_text(["Remember me.", "This fails."])
    visitor.say("And on.")
    visitor.committed(2)
    visitor.page.reload()
    visitor.committed(2)
    expect(visitor.page.locator(".user p")).to_have_text(["Remember me.", "And on."])


def test_a_turn_that_a_reload_cut_off_is_offered_again_and_runs_once(
    visitor: Visitor, server: Server
) -> None:
    gate = threading.Event()
    visitor.say("Cut me off.", ["It beg", Hold(gate)], ["Here I am."])
    visitor.sees("It beg")
    visitor.page.reload()
    visitor.sees("The page was reloaded before this turn ended.")
    expect(visitor.page.locator(".user p")).to_have_text("Cut me off.")
    gate.set()
    visitor.try_again()
    visitor.committed(1)
    first, again = [body["messages"][0]["id"] for body in visitor.posted]
    assert first == again
    assert visitor.kept(server) == ["Cut me off.", "Here I am."]
    visitor.page.reload()
    visitor.committed(1)
    expect(visitor.page.locator(".failure")).to_have_count(0)


@pytest.mark.page_only
def test_a_turn_that_was_kept_is_not_offered_again(visitor: Visitor) -> None:
    def lose(route: Route) -> None:
        route.fetch()  # the server has committed the turn
        visitor.page.reload()

    visitor.page.route(lambda url: url.endswith("/api/chat"), lose, times=1)
    visitor.say("Are you sure?")
    visitor.committed(1)
    expect(visitor.page.locator(".failure")).to_have_count(0)


@pytest.mark.page_only
def test_a_history_that_was_cut_says_so(browser: Browser, fleet: Fleet, provider: Provider) -> None:
    visitor = Visitor(browser, fleet.shared(UI=1, HISTORY_MESSAGES=4), provider)
    for turn in range(1, 5):
        visitor.say(f"This is number {turn}.")
        visitor.committed(turn)
    visitor.page.reload()
    visitor.sees("Turns 1 to 2 are gone: the agent keeps the latest messages of a session")
    assert visitor.page.locator(".user").count() == 2
    visitor.leave()


BROKEN = {
    "blocked": """for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, { get() { throw new DOMException('no') } })""",
    "full": "Storage.prototype.setItem = () => { throw new DOMException('full') }",
    "of another form": """for (const storage of [localStorage, sessionStorage])
        for (const name of ['sessions', 'token'])
            storage[`my-agent: ${name}`] ??= '[{"id": 5}, 1]'""",
    "no list": "localStorage['my-agent: sessions'] ??= '{}'",
}


@pytest.mark.page_only
@pytest.mark.parametrize("how", BROKEN)
def test_a_browser_that_keeps_nothing_has_a_page_all_the_same(
    browser: Browser, server: Server, provider: Provider, how: str
) -> None:
    visitor = Visitor(browser, server, provider)
    visitor.context.add_init_script(BROKEN[how])
    visitor.page.goto(f"{visitor.origin}/?{how}")
    for turn in (1, 2):
        visitor.say(f"Keep number {turn}.")
        visitor.committed(turn)
    visitor.page.get_by_role("button", name="New session").click()
    link = visitor.page.get_by_role("link", name="Keep number 1.")
    expect(link).to_contain_text("2 turns")
    link.click()
    visitor.committed(2)
    visitor.leave()


def test_whoever_runs_the_agent_is_told_why_the_model_failed(
    browser: Browser, visitor: Visitor, fleet: Fleet, provider: Provider
) -> None:
    seen = []
    refusal = "This key's project has no credit."
    steps: list[Step] = [[Refuse(401, text=refusal)], [Refuse(429)], ["Well, ", CUT]]
    for number, step in enumerate(steps):
        visitor.say(f"Why not {number}?", step)
        expect(visitor.page.locator(".failure")).to_have_count(number + 1)
        seen.append(visitor.page.locator(".failure p").nth(2 * number).text_content() or "")
    assert len({*seen}) == 3
    assert f"({refusal})" in seen[0]
    assert "401" in seen[0]
    assert ": check OPENAI_API_KEY." in seen[0]
    other = Visitor(browser, fleet.fresh(UI=1, ALLOWED_HOSTS="agent.example"), provider)
    other.say("Why, from afar?", [Refuse(401)])
    expect(other.failed("model_failed")).to_contain_text("saved. The server's log has the reason.")
    expect(other.page.locator(".failure")).not_to_contain_text("401")
    other.leave()


@pytest.mark.page_only
def test_another_tab_follows(visitor: Visitor) -> None:
    visitor.say("Said here.")
    visitor.committed(1)
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    expect(other.locator(".user p")).to_have_text("Said here.")
    visitor.say("Said here again.")
    visitor.committed(2)
    expect(other.locator(".user p")).to_have_text(["Said here.", "Said here again."])
    expect(other.locator(".outcome")).to_contain_text(["turn 1", "turn 2"])
    visitor.page.get_by_role("button", name="End session").click()
    visitor.page.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(other.locator(".user")).to_have_count(0)
    expect(other.locator("#status")).to_have_text("The session was ended in another tab.")


@pytest.mark.page_only
def test_escape_stops_a_turn_and_closes_the_menu(visitor: Visitor) -> None:
    focused, prompt = "document.activeElement.id", visitor.page.get_by_label("Message")
    for number, how in enumerate(("Escape", "Stop")):
        visitor.say(f"Go on, {how}.", ["On and ", HANG])
        expect(visitor.page.locator(".markdown").last).to_have_text("On and")
        if how == "Stop":
            visitor.page.get_by_role("button", name="Stop").click()
        else:
            visitor.page.keyboard.press(how)
        expect(visitor.page.locator(".failure.stopped")).to_have_count(number + 1)
        assert visitor.page.evaluate(focused) == "prompt"
    visitor.page.set_viewport_size({"width": 360, "height": 700})
    menu = visitor.page.get_by_role("button", name="Sessions", exact=True)
    menu.click()
    expect(visitor.page.locator("nav")).to_be_visible()
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.locator("nav")).to_be_hidden()
    assert visitor.page.evaluate(focused) == "menu"
    low = prompt.evaluate("(prompt) => prompt.clientHeight")
    prompt.fill("one\ntwo\nthree\nfour")
    assert prompt.evaluate("(prompt) => prompt.clientHeight") > 2.5 * low
    visitor.page.get_by_role("button", name="Send").click()
    visitor.committed(1)
    assert prompt.evaluate("(prompt) => prompt.clientHeight") == low
    assert visitor.page.evaluate(focused) == "prompt"


@pytest.mark.page_only
def test_shown_text_can_be_copied(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reply = "**So**:\n\n- it\n\n  ```yaml\n  a:\n    b: c\n  ```"
    visitor.say("Show me.", [reply])
    visitor.committed(1)
    for title, text in (("Copy this code", "a:\n  b: c"), ("Copy this reply", reply)):
        visitor.page.get_by_title(title).click()
        expect(visitor.page.get_by_title(title)).to_have_text("Copied")
        assert visitor.page.evaluate("navigator.clipboard.readText()") == text


def test_the_page_says_which_model_and_tools_answer(visitor: Visitor, server: Server) -> None:
    about = server.get("/agent.json").json
    assert about == {"model": about["model"], "tools": ["word_count"], "resumes": False}
    expect(visitor.page.locator("#agent")).to_have_text(f"{about['model']} · word_count")


@pytest.mark.page_only
def test_a_long_conversation_is_soon_there_and_a_button_leads_to_its_end(visitor: Visitor) -> None:
    visitor.say("Begin.")
    visitor.committed(1)
    text = "Some **words** and `code`.\n\n" + "- an item\n" * 8 + "\n```py\nprint()\n```\n"
    messages: list[dict[str, object]] = []
    for turn in range(1, 251):
        prompt = {"type": "text", "text": f"Prompt {turn}"}
        reply = {"type": "text", "text": f"{text}\n\nReply {turn}", "state": "done"}
        messages.append({"id": f"turn-{turn}", "role": "user", "parts": [prompt]})
        shown = {"id": f"turn-{turn}-reply", "role": "assistant", "parts": [reply]}
        messages.append({**shown, "metadata": {"turn": turn}})

    def seconds(turns: int) -> float:
        """Return how long the page takes to show the end of `turns` turns."""
        shown = messages[: 2 * turns]
        visitor.page.route("**/api/chat?id=*", lambda route: route.fulfill(json=shown))
        began = time.monotonic()
        visitor.page.reload()
        expect(visitor.page.get_by_text(f"Reply {turns}", exact=True)).to_be_in_viewport()
        return time.monotonic() - began

    few, many = seconds(25), seconds(250)
    print(f"25 turns took {few:.2f} s, 250 turns {many:.2f} s")
    assert many < 10 * few + 1, "the time per turn grows"  # `expect` looks once a second
    end = visitor.page.get_by_text("Reply 250", exact=True)
    button = visitor.page.get_by_role("button", name="Jump to latest")
    expect(button).to_be_hidden()
    visitor.page.locator("#transcript").evaluate("(transcript) => (transcript.scrollTop = 0)")
    expect(end).not_to_be_in_viewport()
    button.click()
    expect(end).to_be_in_viewport()
    expect(button).to_be_hidden()


@pytest.mark.page_only
def test_the_visible_part_of_a_turn_survives_a_reload(visitor: Visitor) -> None:
    steps: list[Step] = [["Let me see. ", Call("word_count", {"text": "a b c"})], ["Three."]]
    visitor.say("How many words, and how long?", *steps)
    visitor.committed(1)
    seen = visitor.page.locator(".outcome, .state")
    before = seen.all_text_contents()
    assert re.fullmatch(r"done · \d+(\.\d)? m?s", before[0])
    assert "tokens in" in before[1]
    visitor.page.reload()
    visitor.committed(1)
    assert seen.all_text_contents() == before


def test_sessions_are_apart_and_the_newest_is_first(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("The older one.", ["First ", Hold(gate), "reply."])
    visitor.sees("First")
    visitor.page.get_by_role("button", name="New session").click()
    visitor.say("The newer one.")
    visitor.committed(1)
    links = visitor.page.locator("#sessions a span")
    assert links.all_inner_texts() == ["The newer one.", "The older one."]
    expect(visitor.page.locator(".user")).to_have_count(1)
    gate.set()
    visitor.page.get_by_role("link", name="The older one.").click()
    visitor.sees("First reply.")
    expect(visitor.page.locator(".user p")).to_have_text(["The older one."])


@pytest.mark.parametrize("is_loaded_again", [True, False])
def test_a_restart_of_the_server_is_survived(
    browser: Browser, fleet: Fleet, provider: Provider, is_loaded_again: bool
) -> None:
    server = fleet.fresh(UI=1)
    visitor = Visitor(browser, server, provider)
    visitor.say("Before the restart.")
    visitor.committed(1)
    server.signal(signal.SIGKILL)
    server.exit_code()
    visitor.say("Is anyone there?")
    visitor.sees("network_error")
    visitor.sees("This turn may or may not have been saved. Try again")
    server = fleet.fresh(UI=1, PORT=server.address[1])
    assert server.address
    if is_loaded_again:
        visitor.page.reload()
        visitor.sees("no longer has this session")
        visitor.say("A new turn.")
    else:
        visitor.try_again()
        visitor.sees("It started again")
    visitor.committed(1)
    assert len(visitor.kept(server)) == 2
    visitor.leave()


def test_a_session_ends(visitor: Visitor, server: Server, provider: Provider) -> None:
    visitor.say("End this.")
    visitor.committed(1)
    session = visitor.session
    visitor.page.get_by_role("button", name="End session").click()
    visitor.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert visitor.kept(server) != []
    visitor.page.get_by_role("button", name="End session").click()
    visitor.page.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(visitor.page.locator("#sessions a")).to_have_count(0)
    assert server.get(f"/api/chat?id={session}").json == []
    assert visitor.session != session
    visitor.say("Another one.")
    visitor.committed(1)
    assert len(provider.calls_for("Another one.")[-1].history) <= 2


def test_the_actor_can_be_set_until_a_session_has_a_turn(visitor: Visitor, server: Server) -> None:
    field = visitor.page.get_by_label("Actor")
    field.fill("Łukasz")
    visitor.type("Hello.")
    visitor.page.wait_for_timeout(200)
    expect(visitor.page.locator(".user")).to_have_count(0)
    field.fill("ada")
    visitor.type("Hello.")
    visitor.committed(1)
    expect(field).not_to_be_editable()
    assert server.get(f"/api/chat?id={visitor.session}").status == 403
    assert visitor.kept(server, "ada") == ["Hello.", "You said: Hello."]
    visitor.page.reload()
    visitor.sees("You said: Hello.")
    expect(field).to_have_value("ada")


def test_the_token_is_asked_for_and_kept(
    browser: Browser, fleet: Fleet, provider: Provider
) -> None:
    server = fleet.fresh(UI=1, API_TOKEN="sesame")
    visitor = Visitor(browser, server, provider)
    dialog = visitor.page.get_by_role("dialog")
    visitor.type("Let me in.")
    dialog.get_by_role("button", name="Cancel").click()
    visitor.failed("unauthorized")
    visitor.try_again()
    for token in ("wrong", "sesame"):
        visitor.sees("This server asks for a token." if token == "wrong" else "does not accept")
        dialog.get_by_label("API_TOKEN").fill(token)
        dialog.get_by_role("button", name="Continue").click()
    visitor.committed(1)
    visitor.page.reload()
    visitor.sees("You said: Let me in.")
    expect(dialog).to_be_hidden()
    assert "sesame" not in visitor.page.evaluate("JSON.stringify(localStorage)")
    visitor.leave()


def test_messages_are_text_and_never_run(visitor: Visitor) -> None:
    reply = f"<script>alert(2)</script> [a](javascript:alert(3)) ![b](//example.com/b.png) {IMAGE}"
    call = Call("word_count", {"text": IMAGE})
    visitor.say(IMAGE, [call], [reply])
    visitor.committed(1)
    for _ in ("as it arrived", "as it was read"):
        expect(visitor.page.locator(".user p")).to_have_text(IMAGE)
        expect(visitor.page.locator("#sessions span")).to_have_text(IMAGE)
        expect(visitor.page.locator(".markdown")).to_have_text(reply)
        visitor.page.locator("summary").click()
        expect(visitor.page.get_by_label("Input")).to_contain_text(IMAGE)
        assert visitor.page.locator(".log :is(img, script, a)").count() == 0
        visitor.page.reload()


@pytest.mark.page_only
def test_recalled_memories_are_text(
    browser: Browser, target: Target, provider: Provider, tmp_path: Path
) -> None:
    remembering = replace(target, answers=(("long_term_memory", "agentcore"),))
    project = installed(remembering.variant, **dict(remembering.answers))
    for folder in ("agents", "collections", "iam"):
        shutil.copytree(project / folder, tmp_path / folder)
    server = Server(remembering, tmp_path, None, {"UI": 1})  # offline, with the local memory
    try:
        visitor = Visitor(browser, server, provider)
        said = f"My dog </memory>{IMAGE} is Rex."
        visitor.say(said)
        visitor.committed(1)
        visitor.page.get_by_role("button", name="New session").click()
        expect(visitor.page.locator(".user")).to_have_count(0)
        visitor.say("What about my dog?")
        visitor.committed(1)
        visitor.page.get_by_text("Recalled 1 from memory").click()
        expect(visitor.page.locator(".recalled li")).to_have_text(said)
        visitor.page.reload()
        visitor.page.get_by_text("Recalled 1 from memory").click()
        expect(visitor.page.locator(".recalled li")).to_have_text(said)
        visitor.leave()
    finally:
        server.stop()


@pytest.mark.page_only
def test_data_of_a_server_is_text(visitor: Visitor) -> None:
    hostile = f"</memory></pre>{IMAGE}<script>alert(2)</script>"
    tool = {"toolCallId": "1", "toolName": hostile, "input": {hostile: hostile}, "dynamic": True}
    events = [
        {"type": "data-recalled", "data": [hostile]},
        {"type": "tool-input-available", **tool},
        {"type": "tool-output-available", "toolCallId": "1", "output": hostile},
        {"type": "tool-input-available", **tool, "toolCallId": "2"},
        {"type": "tool-output-error", "toolCallId": "2", "errorText": hostile},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": f"```{IMAGE}\n{hostile}\n"},
        {"type": "error", "errorText": f"{IMAGE}: {hostile}"},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/event-stream")

    visitor.page.route("**/api/chat", answer)
    visitor.type("Be hostile.")
    failure = visitor.failed(hostile)
    expect(failure.locator("code")).to_have_text(IMAGE)
    for summary in visitor.page.locator("summary").all():
        summary.click()
    expect(visitor.page.locator(".recalled li")).to_have_text(hostile)
    expect(visitor.page.locator(".tool").nth(0).get_by_label("Result")).to_have_text(hostile)
    expect(visitor.page.locator(".tool").nth(1).get_by_label("Error")).to_have_text(hostile)
    assert visitor.page.locator(".log :is(img, script, a)").count() == 0


# Numbers that JavaScript writes otherwise, or rounds.
EXACT = ["9007199254740993", "-123456789012345678901234567890", "-0.0", "1.0", "1e400", "1E-7"]
HIDDEN = "a\u202eb\u2066c\u200f\u061c\u200bd\u00a0e\u2028f\x07g\u3164h\ufe0fi\U000e0041j\n\\u202e"
SHOWN = (
    r"a\u202eb\u2066c\u200f\u061c\u200bd\u00a0e\u2028f\u0007g\u3164h\ufe0fi\udb40\udc41j\n\\u202e"
)


def test_approved_arguments_run_unchanged_to_the_last_digit(visitor: Visitor) -> None:
    """Nothing in the arguments is rounded, hidden or put in another order, nor in the name."""
    given = f'{{"n":[{",".join(EXACT)}],"text":{json.dumps(HIDDEN)}}}'
    name = json.dumps("delete\u202eorder")
    tool = f'"toolCallId":"1","toolName":{name},"input":{given}'
    events = [
        '{"type":"start","messageId":"m"}',
        f'{{"type":"tool-input-available",{tool},"dynamic":true}}',
        '{"type":"tool-approval-request","approvalId":"1.a","toolCallId":"1"}',
        '{"type":"finish","finishReason":"tool-calls","messageMetadata":{"turn":1}}',
    ]
    stream = "".join(f"data: {event}\n\n" for event in events) + "data: [DONE]\n\n"
    said = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Delete."}]}
    waiting = f'"type":"dynamic-tool","state":"approval-requested","approval":{{"id":"1.a"}},{tool}'
    history = (
        f'[{json.dumps(said)},{{"id":"m","role":"assistant","metadata":{{"turn":1}},'
        f'"parts":[{{{waiting}}}]}}]'
    )

    def answer(route: Route) -> None:
        is_post = route.request.method == "POST"
        kind = "text/event-stream" if is_post else "application/json"
        route.fulfill(body=stream if is_post else history, content_type=kind)

    visitor.page.route("**/api/chat*", answer)
    visitor.type("Delete.")
    for _ in ("as it arrived", "as it was read"):
        visitor.page.get_by_role("button", name=r"Approve delete\u202eorder").wait_for()
        expect(visitor.page.locator("summary code")).to_have_text(r"delete\u202eorder")
        shown = visitor.page.get_by_label("Input")
        expect(shown).to_be_visible()
        assert (
            re.sub(r"\n\s*", "", shown.text_content() or "")
            == f'{{"n": [{",".join(EXACT)}],"text": "{SHOWN}"}}'
        )
        visitor.page.reload()


def test_a_large_integer_is_shown_as_the_tool_gets_it(visitor: Visitor, target: Target) -> None:
    visitor.say("Count.", [Call("word_count", raw='{"text":9007199254740993}')], ["Done."])
    visitor.committed(1)
    digits = "9007199254740992" if target.is_node else "9007199254740993"
    for _ in ("as it arrived", "as it was read"):
        visitor.page.locator("summary").click()
        expect(visitor.page.get_by_label("Input")).to_have_text(f'{{"text":{digits}}}')
        visitor.page.reload()


@pytest.mark.page_only
def test_an_approval_shows_the_whole_call(visitor: Visitor) -> None:
    """Strings of a script that is read from the right do not reorder the others."""
    calls = {"1": {"lines": ["x " * 2000] * 3}, "2": {"first,second": ["\u05d0", "\u05d1"]}}
    events: list[dict[str, object]] = []
    for id, given in calls.items():
        call = {"toolCallId": id, "toolName": "pay", "input": given}
        events.append({"type": "tool-input-available", **call})
        approval = {"approvalId": f"{id}.a", "toolCallId": id}
        events.append({"type": "tool-approval-request", **approval})
    events.append({"type": "finish", "messageMetadata": {"turn": 1}})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/event-stream")

    visitor.page.route("**/api/chat", answer)
    visitor.type("Pay.")
    visitor.page.get_by_role("button", name="Approve pay").last.wait_for()
    shown, ordered = visitor.page.get_by_label("Input").all()
    assert shown.evaluate("node => node.scrollHeight <= node.clientHeight")
    assert shown.evaluate("node => node.scrollWidth <= node.clientWidth")
    places = "nodes => nodes.map((node) => node.getBoundingClientRect().x)"
    key, first, second = ordered.locator("bdi").evaluate_all(places)
    assert key < first < second


LINK = '<a href="{0}" title="{0}" target="_blank" rel="noopener">{1}</a>'
CODE = (
    "<figure><figcaption>{0}</figcaption>"
    '<pre tabindex="0" role="group" aria-label="{1}"><code>{2}</code></pre>'
    '<button class="copy" type="button" title="Copy this code">Copy</button></figure>'
)
KEY = '<span class="key">{0}</span>'


def figure(language: str, text: str) -> str:
    return CODE.format(language, f"Code {language}".strip(), text)


MARKDOWN = {
    "a\n\nb `<c>` __d__ *e* f_g_h i__j__ ~~k~~": (
        "<p>a</p><p>b <code>&lt;c&gt;</code> <strong>d</strong> <em>e</em> f_g_h i__j__ "
        "<del>k</del></p>"
    ),
    "a\nb  \nc\\\nd": "<p>a\nb<br>c<br>d</p>",
    "***a*** **b *c*** `` d`e `` \\*f\\*": (
        "<p><em><strong>a</strong></em> <strong>b <em>c</em></strong> <code>d`e</code> *f*</p>"
    ),
    "A\n=\nB\n-\n# C #\n###### D\n#e": "<h3>A</h3><h4>B</h4><h3>C</h3><h6>D</h6><p>#e</p>",
    "- b\n  1. c\n\n  d\n- e\n\n> f\n> - g\n\n***": (
        '<ul><li><p>b</p><ol start="1"><li><span>c</span></li></ol><p>d</p></li><li><p>e</p></li>'
        "</ul><blockquote><p>f</p><ul><li><span>g</span></li></ul></blockquote><hr>"
    ),
    "- a\n  - b\n    - c\n      - d\n- e": (
        "<ul><li><span>a</span><ul><li><span>b</span><ul><li><span>c</span><ul>"
        "<li><span>d</span></li></ul></li></ul></li></ul></li><li><span>e</span></li></ul>"
    ),
    "- a\n- b\n1. c\n2. d\n\n7. e": (
        '<ul><li><span>a</span></li><li><span>b</span></li></ul><ol start="1"><li><p>c</p></li>'
        "<li><p>d</p></li><li><p>e</p></li></ol>"
    ),
    "5) a\n   b\nc\n6) d": (
        '<ol start="5"><li><span>a\nb\nc</span></li><li><span>d</span></li></ol>'
    ),
    "1. a\n\n   ```yaml\n   b:\n     - c: d\n       e: f\n   ```\n2. g": (
        '<ol start="1"><li><p>a</p>'
        + figure("yaml", f"{KEY.format('b')}:\n{KEY.format('  - c')}: d\n{KEY.format('    e')}: f")
        + "</li><li><p>g</p></li></ol>"
    ),
    "- [x] a\n- [ ] b": (
        "<ul><li><span>☑ </span><span>a</span></li><li><span>☐ </span><span>b</span></li></ul>"
    ),
    "```html title=x\n<b>**a**</b>\n\n- b\n```\nc": (
        figure(
            "html",
            '<span class="keyword">&lt;b</span><span class="keyword">&gt;</span>**a**'
            '<span class="keyword">&lt;/b</span><span class="keyword">&gt;</span>\n\n- b',
        )
        + "<p>c</p>"
    ),
    "~~~\na\n```\n\n    b\n~~~": figure("", "a\n```\n\n    b"),
    "a\n\n    b\n      c": "<p>a</p>" + figure("", "b\n  c"),
    "```py\nprint()": figure("py", "print()"),
    "a <b>c</b>\n\n<div>\n*d*\n</div>": (
        "<p>a &lt;b&gt;c&lt;/b&gt;</p><p>&lt;div&gt;\n*d*\n&lt;/div&gt;</p>"
    ),
    "&lt;a&gt; &amp; &#65;&#x42;&nbsp;&copy;&Eacute;&rarr;&none; `&lt;`": (
        "<p>&lt;a&gt; &amp; AB&nbsp;©É→&amp;none; <code>&amp;lt;</code></p>"
    ),
    "a [b](data:text/html,c) [d](JAVASCRIPT:e) [f](/g) \\*h\\*": (
        "<p>a [b](data:text/html,c) [d](JAVASCRIPT:e) [f](/g) *h*</p>"
    ),
    '(https://example.com/a_b.) [**c**](http://example.com "d") ![e](https://example.com/f)': (
        f"<p>({LINK.format('https://example.com/a_b', 'https://example.com/a_b')}.) "
        f"{LINK.format('http://example.com', '<strong>c</strong>')} "
        f"{LINK.format('https://example.com/f', 'Image: e')}</p>"
    ),
    "[a][b] [c]\n\n[b]: https://example.com/d": (
        f"<p>{LINK.format('https://example.com/d', 'a')} [c]</p>"
    ),
    "a | b\n--|:-:\n`c\\|d` | e": (
        '<div class="wide"><table><thead><tr><th>a</th><th style="text-align: center;">b</th></tr>'
        "</thead><tbody><tr><td><code>c|d</code></td>"
        '<td style="text-align: center;">e</td></tr></tbody></table></div>'
    ),
    "a\n| b |\n|-|\n| c |\n\nd": (
        '<p>a</p><div class="wide"><table><thead><tr><th>b</th></tr></thead>'
        "<tbody><tr><td>c</td></tr></tbody></table></div><p>d</p>"
    ),
    "> a\n> > b\n\nc\n> d": (
        "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"
        "<blockquote><p>d</p></blockquote>"
    ),
    "[![a](https://b.example/c)](https://d.example/e) ![[f](http://g)](https://h.example/i)": (
        f"<p>{LINK.format('https://d.example/e', 'Image: a')} "
        f"{LINK.format('https://h.example/i', 'Image: f')}</p>"
    ),
    "a<br>b<BR/>c <br x>\n\n| d |\n|-|\n| e<br>f |": (
        '<p>a<br>b<br>c &lt;br x&gt;</p><div class="wide"><table><thead><tr><th>d</th></tr></thead>'
        "<tbody><tr><td>e<br>f</td></tr></tbody></table></div>"
    ),
    "\\(a_1*b*\\) $x_1 *y* z_2$ \\[*c*\\] $5 *to* $6\n\n$$\na\n+ *b*\n$$\n\n\\[\n- c\n\\]": (
        "<p>\\(a_1*b*\\) $x_1 *y* z_2$ \\[*c*\\] $5 <em>to</em> $6</p>"
        "<p>$$\na\n+ *b*\n$$</p><p>\\[\n- c\n\\]</p>"
    ),
}
SHOW = """async (texts) => {
    const { showMarkdown } = await import('./markdown.js')
    return texts.map((text) => {
        const [container, whole] = [document.createElement('div'), document.createElement('div')]
        showMarkdown(whole, text)
        for (let end = 0; end <= text.length; end++) showMarkdown(container, text.slice(0, end))
        if (container.innerHTML !== whole.innerHTML) return `as it arrives ${container.innerHTML}`
        return whole.innerHTML.replaceAll(' dir="auto"', '')
    })
}"""


@pytest.mark.page_only
def test_markdown_becomes_the_same_nodes_at_once_and_as_it_arrives(visitor: Visitor) -> None:
    assert dict(zip(MARKDOWN, visitor.page.evaluate(SHOW, list(MARKDOWN)), strict=True)) == MARKDOWN


# What begins, ends or nests something, alone and with letters: each is repeated.
PIECES = [
    *"*_`~[]()<>!|#-+=\\&\"':.@ \n\t1a",
    *("**", "***", "``", "```", "~~", "![", "- ", "1. ", "1) ", "> ", "- > ", ">\n", "\n\n"),
    *("  \n", "- a\n", "  - a\n", "* a\n\n", "-\n", "|-\n", "|a|\n|-|\n", "a|b\n-|-\n"),
    *("===\n", "```\n", "[a](", "[a](b", "[a](<b", "![a](", "[a][", "[a]: b\n", "[[", "[]"),
    *("<a ", '<a b="', "</", "<a>", "<!--", "<?", "http://a ", "www.a ", "a@b.c ", "&lt;"),
    *("\\*", "[ ] ", "- [ ] ", "`a ``", "*a ", "**a ", "_a ", "~~a ", "*a **b ", "a*", "a**"),
    *("$", "$$", "$a ", "$$a\n\n", "\\(", "\\[", "\\[a\n\n", "$a$"),
    *("**_a", "~_1", "~a&", "_*a", "1=*", "*~[", "~<*11"),
]
# Short blocks, of which a reply can have many.
BLOCKS = ["#\n", "-\n", "=\n", "a\n\n", "1. a\n"]
TIME = """async ([pieces, size]) => {
    const { showMarkdown } = await import('./markdown.js')
    return pieces.flatMap((piece) => ['', 'a'].map((start) => {
        const text = start + piece.repeat(size / piece.length)
        const [container, began] = [document.createElement('div'), performance.now()]
        showMarkdown(container, text)
        return [Math.round(performance.now() - began), start + piece]
    }))
}"""


@pytest.mark.full
@pytest.mark.page_only
def test_no_text_can_keep_the_page_busy(visitor: Visitor) -> None:
    # A loaded machine takes longer for this, too.
    loop = "for (let number = 0; number < 1e8; number++);"
    work = f"() => {{ const begun = performance.now(); {loop} return performance.now() - begun }}"
    calibration = max(visitor.page.evaluate(work) for _ in range(5))
    for pieces, size in ((PIECES, 6000), (BLOCKS, 100_000)):
        times = sorted(visitor.page.evaluate(TIME, [pieces, size]))
        assert times[-1][0] < max(1500, 20 * calibration), (calibration, times[-5:])


@pytest.mark.page_only
def test_code_that_arrives_keeps_its_place_and_tables_their_words(visitor: Visitor) -> None:
    gate, lines = threading.Event(), "".join(f"line {number}\n" for number in range(60))
    table = "| Name | Note |\n|--|--|\n| " + " | ".join(["Characteristically " * 3] * 2) + " |\n"
    visitor.page.set_viewport_size({"width": 360, "height": 700})
    begin, end = f"{table}\n1. First:\n\n   ```\n   {'x' * 200}\n", f"   {lines}   ```\n"
    visitor.say("Write.", [begin, Hold(gate), end.replace("\nline", "\n   line")])
    code = visitor.page.locator("pre")
    expect(code).to_contain_text("xxx")
    code.evaluate("(code) => { code.scrollLeft = 90; code.marked = true }")
    gate.set()
    visitor.committed(1)
    assert code.evaluate("(code) => [code.scrollLeft, code.marked]") == [90, True]
    assert code.evaluate("(code) => code.scrollHeight - code.clientHeight") == 0
    expect(code).to_have_text("x" * 200 + "\n" + lines, use_inner_text=True)
    word = visitor.page.locator("td").first.evaluate("(cell) => cell.getBoundingClientRect().width")
    assert word > 110  # the longest word is not broken


@pytest.mark.page_only
def test_text_begins_on_the_side_of_its_script(visitor: Visitor) -> None:
    visitor.say("שלום", ["שלום world\n\n- مرحبا\n\nHello"])
    visitor.committed(1)
    begins = """(node) => {
        const [range, box] = [document.createRange(), node.getBoundingClientRect()]
        range.selectNodeContents(node)
        return range.getBoundingClientRect().left - box.left > 50 ? 'right' : 'left'
    }"""
    sides = [one.evaluate(begins) for one in visitor.page.locator(".markdown :is(p, li)").all()]
    assert sides == ["right", "right", "left"]


@pytest.mark.page_only
def test_only_the_conversation_is_scrolled(visitor: Visitor) -> None:
    for turn in (1, 2):
        visitor.say(f"At length, {turn}.", ["word\n\n" * 60])
        visitor.committed(turn)
    visitor.page.keyboard.press("Tab")
    visitor.page.locator("#transcript").focus()
    for key in ("End", "Home", "PageDown", "End"):
        visitor.page.keyboard.press(key)
    height = "document.scrollingElement.scrollHeight"
    assert visitor.page.evaluate(f"{height} - innerHeight") == 0
    expect(visitor.page.locator("header")).to_be_in_viewport()


@pytest.mark.page_only
def test_nothing_is_sent_elsewhere_even_by_a_page_that_wants_to(
    browser: Browser, fleet: Fleet, provider: Provider
) -> None:
    visitor = Visitor(browser, fleet.shared(UI=1), provider)
    visitor.page.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
    visitor.page.evaluate("try { document.body.innerHTML = '<b>' } catch {}")
    visitor.page.wait_for_timeout(500)
    for kind in ("connect-src", "require-trusted-types-for"):
        assert any(f"policy: {kind}" in problem for problem in visitor.problems), visitor.problems
    visitor.context.close()


@pytest.mark.page_only
def test_the_page_can_be_used_by_keyboard(visitor: Visitor) -> None:
    visitor.say("One.")
    visitor.committed(1)
    visitor.page.reload()
    visitor.committed(1)
    order = []
    name = "const at = document.activeElement; at.id || at.tagName"
    for _ in range(8):
        order.append(visitor.page.evaluate(name))
        visitor.page.keyboard.press("Tab")
    assert order[0] == "prompt"
    around = "".join(f"{one} " for one in order)
    assert "send" in around
    assert "new A actor end transcript" in around + around


@pytest.mark.page_only
@pytest.mark.parametrize("width", [360, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, fleet: Fleet, provider: Provider, scheme: str, width: int
) -> None:
    manifest = {"private": True, "dependencies": {"axe-core": "^4.11"}}
    axe = packages(json.dumps(manifest).encode()) / "axe-core" / "axe.min.js"
    size = {"width": width, "height": 740}
    options = {"bypass_csp": True, "viewport": size, "color_scheme": scheme}
    visitor = Visitor(browser, fleet.shared(UI=1), provider, **options)
    table = "| a | b |\n|---|---|\n| 1 | [two](https://example.com) |"
    code = "```py\n# a\ndef b(c='d', e=1): ...\n```\n```diff\n- a\n+ b\n```"
    reply = f"# Title\n\n{table}\n\n{code}"
    visitor.say("x" * 200, [Call("word_count", {"text": "y" * 500})], [reply])
    visitor.committed(1)
    visitor.page.locator("summary").click()
    visitor.say("Fail.", ["```\n" + "z" * 300, CUT])
    visitor.failed("model_failed")
    views = ["the conversation", "the dialog"]
    if width == 360:
        views.append("the sessions")
    visitor.page.add_script_tag(path=axe)
    for view in views:
        if view == "the sessions":
            visitor.page.keyboard.press("Escape")
            visitor.page.get_by_role("button", name="Sessions", exact=True).click()
        elif view == "the dialog":
            visitor.page.get_by_role("button", name="End session").click()
        found = visitor.page.evaluate("axe.run().then(({ violations }) => violations)")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], view
        assert visitor.page.evaluate("document.scrollingElement.scrollWidth") == width, view
    visitor.context.close()


def test_the_page_is_sent_with_a_policy_and_behind_the_checks(server: Server) -> None:
    for path in ("/", "/page.js", "/page.css", "/icon.svg"):
        reply = server.get(path)
        assert reply.status == 200
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert "unsafe" not in reply.headers["Content-Security-Policy"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert server.get(path, {"Host": "evil.example"}).status == 403
        again = server.get(path, {"If-None-Match": reply.headers["ETag"]})
        assert (again.status, again.text) == (304, "")
        assert server.get(path, {"If-None-Match": '"other"'}).status == 200
    assert server.get("/markdown.py").status == 404
    assert server.post({"prompt": "Hello."}).status == 200


def test_the_page_is_off_by_default_and_needs_a_token_beyond_loopback(fleet: Fleet) -> None:
    assert fleet.shared().get("/").status == 404
    refused = fleet.fresh(UI=1, HOST="0.0.0.0")
    assert refused.exit_code() == 1
    assert "The page on HOST 0.0.0.0 needs API_TOKEN" in refused.log
    open_to_all = fleet.fresh(UI=1, HOST="0.0.0.0", API_TOKEN="sesame")
    assert open_to_all.get("/").status == 200
    assert open_to_all.get("/agent.json").status == 401
    assert f"Page: http://localhost:{open_to_all.address[1]}/\n" in open_to_all.log
