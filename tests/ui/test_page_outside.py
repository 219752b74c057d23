"""The page behind proxies, under other names, on paper, and with a browser that stores nothing."""

# ruff: noqa: F811 (fixtures)

import json
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest
from playwright.sync_api import APIResponse, Browser, Route, expect

from tests.conformance.client import Exchange
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Call, Hold
from tests.ui.chat_page import unique
from tests.ui.test_page import pytest_generate_tests, server  # noqa: F401 (what pytest looks for)
from tests.ui.test_page_changes import echoed, edit, hasten, hear, said, talk
from tests.ui.visitor import Visitor

NAME = "agent.test"


@pytest.fixture
def named(fleet: Fleet) -> Server:
    """A server that is called by a name, whose origin its ALLOWED_ORIGINS does not list."""
    return fleet.fresh(UI=1, ALLOWED_HOSTS=NAME)


def origin_of(server: Server) -> str:
    return f"http://{NAME}:{server.address[1]}"


def test_a_page_by_another_name_says_which_setting_lists_it(
    browser: Browser, named: Server, provider: Provider
) -> None:
    visitor = Visitor(browser, named, provider)
    origin = origin_of(named)
    visitor.page.goto(origin)
    visitor.say("Is anyone there?")
    refusal = f'ALLOWED_ORIGINS does not list the Origin "{origin}".'
    expect(visitor.failed("origin_forbidden")).to_contain_text(refusal)
    provider.wait("the log", lambda: refusal in named.log)
    assert named.get("/agent.json", {"Origin": origin}).error == "origin_forbidden"
    assert named.get("/page.js", {"Host": "evil.example"}).error == "origin_forbidden"
    refusal = 'ALLOWED_HOSTS does not list the Host "evil.example".'
    provider.wait("the log", lambda: refusal in named.log)
    visitor.context.close()


@pytest.mark.page_only
def test_a_page_whose_script_is_blocked_says_so(visitor: Visitor) -> None:
    late = visitor.page.get_by_text("This page did not start.")
    expect(late).to_have_count(0)
    visitor.page.route("**/page.js", lambda route: route.fulfill(status=403))
    visitor.page.reload()
    expect(late).to_be_visible()


def answer_as_gateway(route: Route) -> None:
    route.fulfill(status=504, content_type="text/html", body="<h1>504 Gateway Time-out</h1>")


def gives_up(server: Server, passed: list[Exchange]) -> Callable[[Route], None]:
    """A gateway that answers before the server, which goes on while `passed` is kept."""

    def give_up(route: Route) -> None:
        passed.append(server.send(json.loads(route.request.post_data or ""), path="/api/chat"))
        answer_as_gateway(route)

    return give_up


@pytest.mark.page_only
def test_a_turn_that_a_gateway_gave_up_is_unknown_until_the_server_says_so(
    visitor: Visitor, server: Server, provider: Provider
) -> None:
    """The server goes on after the gateway has answered."""
    gate, passed = threading.Event(), list[Exchange]()
    prompt = unique("slow")
    provider.script(prompt, ["Late ", Hold(gate), "but kept."])

    visitor.page.route("**/api/chat", gives_up(server, passed))
    visitor.type(prompt)
    visitor.sees("This turn may or may not have been saved. Try again")
    visitor.sees("The page keeps asking the server")
    expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)
    gate.set()
    visitor.committed(1)
    expect(visitor.page.locator(".failure")).to_have_count(0)
    assert said(visitor.page) == [prompt, "Late but kept."]


@pytest.mark.page_only
def test_a_page_asks_on_after_a_short_outage(
    visitor: Visitor, server: Server, provider: Provider
) -> None:
    gate, passed = threading.Event(), []
    prompt = unique("outage")
    provider.script(prompt, ["Late ", Hold(gate), "but kept."])

    def lose(route: Route) -> None:
        if route.request.method == "POST":
            passed.append(server.send(json.loads(route.request.post_data or ""), path="/api/chat"))
        route.abort()

    visitor.page.clock.install()
    talk(visitor, "Before.")
    visitor.page.route("**/api/chat*", lose, times=2)
    visitor.type(prompt)
    visitor.sees("This turn may or may not have been saved.")
    for _ in range(2):
        hear(visitor)
        visitor.sees("The page keeps asking the server")
        expect(visitor.page.get_by_text("Interrupted")).to_have_count(0)
    gate.set()
    provider.wait("the turn", lambda: len(visitor.kept(server)) == 4)
    hasten(visitor)
    visitor.committed(2)
    expect(visitor.page.locator(".failure")).to_have_count(0)
    assert said(visitor.page)[-2:] == [prompt, "Late but kept."]


@pytest.mark.page_only
def test_a_retry_without_an_answer_is_unknown_until_the_server_says_so(
    visitor: Visitor, server: Server, provider: Provider
) -> None:
    """While it runs, the server has the turn that it replaces."""
    gate, passed = threading.Event(), list[Exchange]()
    prompt = unique("again")
    provider.script(prompt, ["First."], ["Late ", Hold(gate), "but kept."])

    visitor.page.clock.install()
    talk(visitor, prompt)
    visitor.page.route("**/api/chat", gives_up(server, passed))
    visitor.page.get_by_role("button", name="Retry").click()
    visitor.sees("This turn may or may not have been saved.")
    hear(visitor)
    visitor.sees("The page keeps asking the server")
    gate.set()
    provider.wait("the turn", lambda: "Late but kept." in visitor.kept(server))
    hasten(visitor)
    visitor.sees("Late but kept.")
    visitor.committed(1)
    expect(visitor.page.locator(".failure, .notice")).to_have_count(0)
    assert said(visitor.page) == [prompt, "Late but kept."]


def fail(route: Route, type: str) -> None:
    part = {"type": "error", "errorText": f"{type}: Retry later."}
    body = f"data: {json.dumps(part)}\n\ndata: [DONE]\n\n"
    route.fulfill(body=body, content_type="text/event-stream")


def loses(sent: list[Any]) -> Callable[[Route], None]:
    """A server that fails before it takes a turn; its request is added to `sent`."""

    def lose(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or ""))
        fail(route, "store_unavailable")

    return lose


@pytest.mark.page_only
@pytest.mark.parametrize("type", ["store_unavailable", "turn_lost"])
def test_a_turn_that_was_saved_although_it_failed_is_shown(
    visitor: Visitor, server: Server, provider: Provider, type: str
) -> None:
    def lose(route: Route) -> None:
        route.fetch()  # the server has committed the turn
        fail(route, type)

    visitor.page.route("**/api/chat", lose)
    for text in (unique("new"), unique("edited")):
        if text.startswith("new"):
            visitor.type(text)
        else:
            edit(visitor.page, 0, text)
        visitor.sees(f"You said: {text}")
        visitor.committed(1)
        expect(visitor.page.locator(".failure, .notice")).to_have_count(0)
        assert said(visitor.page) == echoed(text) == visitor.kept(server)
        assert len(provider.calls_for(text)) == 1


@pytest.mark.page_only
@pytest.mark.parametrize("how", ["new", "edited", "edited and tried again"])
def test_a_turn_whose_save_is_late_is_unknown_until_the_server_says_so(
    visitor: Visitor, server: Server, provider: Provider, how: str
) -> None:
    sent: list[object] = []

    prompt = unique(how)
    visitor.page.clock.install()
    talk(visitor, "Before.")
    visitor.page.route("**/api/chat", loses(sent), times=1)
    if how == "new":
        visitor.type(prompt)
    else:
        edit(visitor.page, 0, prompt)
    for _ in range(2):
        visitor.sees("This turn may or may not have been saved.")
        visitor.sees("The page keeps asking the server")
        expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)
        hear(visitor)
    server.send(sent[0], path="/api/chat").reply()
    if how == "edited and tried again":
        visitor.try_again()
    else:
        hasten(visitor)
    visitor.sees(f"You said: {prompt}")
    expected = echoed(*(["Before."] if how == "new" else []), prompt)
    visitor.committed(len(expected) // 2)
    expect(visitor.page.locator(".failure, .notice")).to_have_count(0)
    assert said(visitor.page) == expected == visitor.kept(server)
    assert len(provider.calls_for(prompt)) == 1


@pytest.mark.page_only
@pytest.mark.parametrize("is_reloaded", [False, True], ids=["at once", "after a reload"])
def test_an_edit_is_tried_again_only_after_a_look_at_the_session(
    visitor: Visitor, server: Server, provider: Provider, is_reloaded: bool
) -> None:
    """The server would replace the turn a second time."""

    sent: list[object] = []
    prompt = unique("edited")
    visitor.page.clock.install()
    talk(visitor, "Before.")
    visitor.page.route("**/api/chat", loses(sent), times=1)
    edit(visitor.page, 0, prompt)
    visitor.sees("This turn may or may not have been saved.")
    if is_reloaded:
        visitor.page.reload()
        visitor.sees("This turn may or may not have been saved.")
    server.send(sent[0], path="/api/chat").reply()
    visitor.page.route("**/api/chat?id=*", lambda route: route.abort(), times=1)
    visitor.try_again()
    visitor.sees("The turns could not be read.")
    visitor.page.locator(".failure", has_text="could not be read").get_by_text("Try again").click()
    visitor.sees(f"You said: {prompt}")
    visitor.committed(1)
    expect(visitor.page.locator(".failure, .notice")).to_have_count(0)
    assert said(visitor.page) == echoed(prompt) == visitor.kept(server)
    assert len(provider.calls_for(prompt)) == 1


@pytest.mark.page_only
@pytest.mark.parametrize(
    "is_last", [True, pytest.param(False, marks=pytest.mark.full)], ids=["last", "followed"]
)
def test_an_edit_with_the_same_reply_never_runs_twice(
    visitor: Visitor, server: Server, provider: Provider, is_last: bool
) -> None:
    sent: list[dict[str, Any]] = []
    mails = [unique("Mail Ann"), unique("Mail Bob")]
    for mail in mails:
        provider.script(mail, ["Done."])
    visitor.page.clock.install()
    talk(visitor, mails[0])
    visitor.page.route("**/api/chat", loses(sent), times=1)
    edit(visitor.page, 0, mails[1])
    visitor.sees("This turn may or may not have been saved.")
    server.send(sent[0], path="/api/chat").reply()
    expected = [mails[1], "Done."]
    if not is_last:
        next = {"id": "next", "role": "user", "parts": [{"type": "text", "text": "Next."}]}
        server.send({"id": visitor.session, "messages": [next]}, path="/api/chat").reply()
        expected += echoed("Next.")
    visitor.try_again()
    visitor.sees(expected[-1])
    expect(visitor.page.locator(".user p").first).to_have_text(mails[1])
    expect(visitor.page.locator(".failure, .notice")).to_have_count(0)
    assert said(visitor.page) == expected == visitor.kept(server)
    assert len(provider.calls_for(mails[1])) == 1


@pytest.mark.full
@pytest.mark.page_only
def test_a_later_turn_with_the_same_text_is_not_taken_for_a_retry(
    visitor: Visitor, provider: Provider
) -> None:
    prompt = unique("Go on")
    talk(visitor, prompt, prompt, prompt)
    visitor.page.route("**/api/chat", answer_as_gateway, times=1)
    visitor.page.get_by_role("button", name="Retry").first.click()
    visitor.sees("This turn may or may not have been saved.")
    visitor.try_again()
    visitor.sees("Tried again: 2 later turns were removed.")
    assert said(visitor.page) == echoed(prompt)
    assert len(provider.calls_for(prompt)) == 4


@pytest.mark.full
@pytest.mark.page_only
def test_a_lost_retry_of_a_reply_with_a_blank_text_is_unknown(
    visitor: Visitor, provider: Provider
) -> None:
    prompt = unique("Count")
    provider.script(prompt, ["\n\n", Call("word_count", {"text": "a"})], ["Done."])
    talk(visitor, prompt, unique("next"))
    visitor.page.route("**/api/chat", answer_as_gateway, times=1)
    visitor.page.get_by_role("button", name="Retry").first.click()
    visitor.sees("This turn may or may not have been saved.")


@pytest.mark.page_only
def test_a_reload_during_the_second_attempt_leaves_the_first_unknown(visitor: Visitor) -> None:
    held: list[Route] = []
    error = {"type": "draining", "message": "This agent is shutting down; retry later."}
    routes = [
        lambda route: route.fulfill(status=503, json={"error": error}),
        lambda route: held.append(route),
        answer_as_gateway,
    ]
    for handle in routes:  # the last one is first
        visitor.page.route("**/api/chat", handle, times=1)
    visitor.type(unique("thrice"))
    visitor.sees("This turn may or may not have been saved.")
    with visitor.page.expect_request("**/api/chat"):
        visitor.try_again()
    visitor.page.reload()
    visitor.sees("The page was reloaded before this turn ended.")
    visitor.sees("This turn may or may not have been saved.")
    visitor.try_again()
    visitor.sees("draining")
    visitor.sees("This turn may or may not have been saved.")
    expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)


@pytest.mark.full
@pytest.mark.page_only
def test_a_turn_stops_before_the_agent_is_described(visitor: Visitor, provider: Provider) -> None:
    held: list[Route] = []
    prompt = unique("never sent")
    visitor.page.route("**/agent.json", lambda route: held.append(route))
    visitor.page.reload()
    visitor.type(prompt)
    visitor.page.get_by_role("button", name="Stop").click()
    visitor.failed("Stopped")
    assert provider.calls_for(prompt) == []


@pytest.mark.page_only
def test_a_refused_second_attempt_leaves_the_first_unknown(
    visitor: Visitor, server: Server, provider: Provider
) -> None:
    gate, passed = threading.Event(), list[Exchange]()
    prompt = unique("twice")
    provider.script(prompt, ["Late ", Hold(gate), "but kept."])

    error = {"type": "draining", "message": "This agent is shutting down; retry later."}
    visitor.page.clock.install()
    talk(visitor, "Before.")
    visitor.page.route(
        "**/api/chat", lambda route: route.fulfill(status=503, json={"error": error}), times=2
    )
    visitor.page.route("**/api/chat", gives_up(server, passed), times=1)
    visitor.type(prompt)
    visitor.sees("This turn may or may not have been saved.")
    visitor.try_again()
    visitor.sees("draining")
    visitor.sees("This turn may or may not have been saved.")
    visitor.page.reload()
    visitor.sees("draining")
    visitor.sees("This turn may or may not have been saved.")
    expect(visitor.page.get_by_text("this session is unchanged")).to_have_count(0)
    gate.set()
    provider.wait("the turn", lambda: len(visitor.kept(server)) == 4)
    hasten(visitor)
    visitor.committed(2)
    expect(visitor.page.locator(".failure")).to_have_count(0)
    assert said(visitor.page)[-2:] == [prompt, "Late but kept."]


@pytest.mark.page_only
def test_a_clock_that_was_set_back_hides_no_turns(visitor: Visitor) -> None:
    talk(visitor, "Before.")
    visitor.page.evaluate(
        """for (const key of Object.keys(localStorage)) {
            const sessions = JSON.parse(localStorage[key])
            if (!Array.isArray(sessions)) continue
            const running = { id: 'x', text: '', began: Date.now() + 3_600_000 }
            localStorage[key] = JSON.stringify(sessions.map((one) => ({ ...one, running })))
        }"""
    )
    visitor.page.reload()
    visitor.committed(1)
    assert said(visitor.page) == echoed("Before.")


@pytest.mark.page_only
def test_nobody_asks_about_a_session_that_was_ended(visitor: Visitor) -> None:
    visitor.page.clock.install()
    talk(visitor, "Kept.")
    ended = visitor.session
    visitor.page.route("**/api/chat*", lambda route: route.abort(), times=2)
    visitor.type("Lost.")
    visitor.sees("This turn may or may not have been saved.")
    visitor.page.get_by_role("button", name="End session").click()
    visitor.page.locator("#confirm").click()
    expect(visitor.page.locator("#sessions a")).to_have_count(0)
    asked = len(visitor.requests)
    hasten(visitor)
    visitor.page.evaluate("fetch('agent.json').then((response) => response.text())")
    assert [one.url for one in visitor.requests[asked:] if ended in one.url] == []
    assert ended not in stored(visitor)


@pytest.mark.page_only
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_nothing_is_stored_of_a_session_that_is_ended_while_a_turn_runs(
    visitor: Visitor, where: str
) -> None:
    late: list[Route] = []
    visitor.page.route("**/api/chat?id=*", lambda route: late.append(route))
    visitor.say("Half.", ["It beg", HANG])
    visitor.sees("It beg")
    ended, page = visitor.session, visitor.page
    assert ended in stored(visitor)
    if where == "elsewhere":
        page = visitor.context.new_page()
        page.goto(visitor.page.url)
        with visitor.page.expect_request("**/api/chat?id=*"):
            visitor.page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="End session").click()
    page.locator("#confirm").click()
    expect(visitor.page.locator("#sessions a")).to_have_count(0)
    with visitor.page.expect_event("requestfinished", lambda it: "chat?id=" in it.url):
        late[0].continue_()
    visitor.page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")
    assert ended not in stored(visitor)


def stored(visitor: Visitor) -> str:
    return str(visitor.page.evaluate("JSON.stringify([sessionStorage, localStorage])"))


@pytest.mark.page_only
@pytest.mark.parametrize("how", ["redirect", "page", "status"])
def test_an_expired_sign_on_says_so(visitor: Visitor, how: str) -> None:
    def ask(route: Route) -> None:
        if how == "redirect":
            route.fulfill(status=302, headers={"Location": "/sign-in"})
        else:
            status = 200 if how == "page" else 401
            route.fulfill(status=status, content_type="text/html", body="<form>Sign in</form>")

    visitor.page.route("**/api/chat*", ask)
    visitor.type("Let me in.")
    expect(visitor.failed("signed_out")).to_contain_text("reload this page to sign in")
    expect(visitor.page.get_by_role("dialog")).to_be_hidden()
    visitor.page.unroute("**/api/chat*")
    visitor.page.reload()
    visitor.failed("signed_out")
    visitor.try_again()
    visitor.committed(1)


BASIC = "Basic YWRhOnNlY3JldA=="  # ada:secret


class Proxy(BaseHTTPRequestHandler):
    """A proxy that asks for a password, and sends the request on with all of its headers."""

    upstream: tuple[str, int]

    def do_GET(self) -> None:
        if self.headers.get_all("Authorization") != [BASIC]:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="proxy"')
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = HTTPConnection(*self.upstream)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        reply = connection.getresponse()
        self.send_response(reply.status)
        for name in ("Content-Type", "WWW-Authenticate"):
            if value := reply.getheader(name):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.read())
        connection.close()

    do_POST = do_GET  # noqa: N815 (the names of the standard library)

    def log_message(self, *_: object) -> None:
        pass


def test_a_token_goes_beside_the_password_of_a_proxy(
    browser: Browser, fleet: Fleet, provider: Provider
) -> None:
    """A browser sends the password itself, unless the page sets Authorization."""
    server = fleet.fresh(UI=1, API_TOKEN="sesame")
    handler = cast("Any", type("Bound", (Proxy,), {"upstream": server.address}))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        front = cast("Any", SimpleNamespace(address=proxy.server_address))
        password = {"username": "ada", "password": "secret"}
        visitor = Visitor(browser, front, provider, http_credentials=password)
        visitor.type("Let me in.")
        visitor.page.get_by_role("dialog").get_by_label("API_TOKEN").fill("sesame")
        visitor.page.keyboard.press("Enter")
        visitor.committed(1)
        visitor.leave()
        proxy.shutdown()
    basic = {"Authorization": BASIC}
    assert server.get("/agent.json", basic).error == "unauthorized"
    assert server.get("/agent.json", {**basic, "X-API-Token": "sesam"}).error == "unauthorized"
    assert server.get("/agent.json", {**basic, "X-API-Token": "sesame"}).status == 200


@pytest.mark.page_only
def test_a_session_that_another_tab_ends_while_it_streams_stays_ended(
    visitor: Visitor, server: Server
) -> None:
    replies: list[tuple[Route, APIResponse]] = []
    talk(visitor, "First.")
    session = visitor.session
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    expect(other.locator(".outcome")).to_contain_text("committed as turn 1")
    visitor.page.route("**/api/chat", lambda route: replies.append((route, route.fetch())))
    visitor.say("Go on.")
    while not replies:
        visitor.page.wait_for_timeout(20)
    other.get_by_role("button", name="End session").click()
    other.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(other.locator("#sessions a")).to_have_count(0)
    ((route, response),) = replies
    route.fulfill(response=response)
    expect(visitor.page.locator("#status")).to_have_text("The session was ended in another tab.")
    expect(visitor.page.locator("#sessions a")).to_have_count(0)
    expect(other.locator("#sessions a")).to_have_count(0)
    assert server.get(f"/api/chat?id={session}").json == []


LAYOUT = """() => {
    const isShown = (name) => document.querySelector(name).getClientRects().length > 0
    const wide = [...document.querySelectorAll('pre, .wide, #transcript')]
    const last = [...document.querySelectorAll('.outcome')].at(-1).getBoundingClientRect()
    return {
        shown: ['#composer', 'nav', '#keys', '.copy', '.change'].filter(isShown),
        cut: wide.filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth).length,
        isWhole: document.documentElement.scrollHeight >= last.bottom + scrollY,
        scrolls: document.querySelector('#transcript').scrollHeight >
            document.querySelector('#transcript').clientHeight,
    }
}"""


@pytest.mark.page_only
def test_a_printed_conversation_is_whole_and_nothing_lies_across_it(visitor: Visitor) -> None:
    wide = f"| {'name ' * 9}| {'x' * 90} |\n|---|---|\n| {'y' * 90} | b |"
    visitor.say("Print.", [f"```\n{'z' * 300}\n```\n\n{wide}\n\n" + "word\n\n" * 60])
    visitor.committed(1)
    visitor.page.emulate_media(media="print")
    visitor.page.set_viewport_size({"width": 700, "height": 900})
    found = visitor.page.evaluate(LAYOUT)
    assert found == {"shown": [], "cut": 0, "isWhole": True, "scrolls": False}


@pytest.mark.page_only
def test_forced_colors_keep_prompts_and_the_current_session_visible(visitor: Visitor) -> None:
    visitor.say("Borders.", ["Yes."])
    visitor.committed(1)
    visitor.page.emulate_media(forced_colors="active")
    prompt = visitor.page.locator(".user p")
    session = visitor.page.locator("nav a[aria-current]")
    assert prompt.evaluate("it => getComputedStyle(it).borderTopStyle") == "solid"
    assert session.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"


@pytest.mark.page_only
def test_a_browser_that_stores_nothing_is_no_secret(
    browser: Browser, server: Server, provider: Provider
) -> None:
    visitor = Visitor(browser, server, provider)
    full = "Storage.prototype.setItem = () => { throw new DOMException('full') }"
    visitor.context.add_init_script(full)
    visitor.page.goto(f"{visitor.origin}/?full")
    talk(visitor, "One.", "Two.")
    expect(visitor.page.get_by_text("This browser cannot store data")).to_have_count(1)
    visitor.leave()


@pytest.mark.page_only
def test_a_browser_that_stores_nothing_keeps_memories_and_times(
    browser: Browser, server: Server, provider: Provider
) -> None:
    turn = {"turn": 1, "milliseconds": 1, "inputTokens": 30, "outputTokens": 2}
    events: list[dict[str, object]] = [
        {"type": "data-recalled", "data": ["Ada likes tea."]},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "Tea."},
        {"type": "finish", "messageMetadata": turn},
    ]
    text = {"type": "text", "text": "Tea."}
    history = [
        {"id": "m", "role": "user", "parts": [text]},
        {"id": "m-reply", "role": "assistant", "parts": [text], "metadata": {"turn": 1}},
    ]

    def answer(route: Route) -> None:
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        if route.request.method == "GET":
            route.fulfill(json=history)
        else:
            route.fulfill(body=body, content_type="text/event-stream")

    visitor = Visitor(browser, server, provider)
    full = "Storage.prototype.setItem = () => { throw new DOMException('full') }"
    visitor.context.add_init_script(full)
    visitor.page.route("**/api/chat*", answer)
    visitor.page.goto(f"{visitor.origin}/?full")
    visitor.type("Tea?")
    visitor.committed(1)
    events = [{"type": "error", "errorText": "model_failed: It failed."}]
    visitor.page.get_by_role("button", name="Retry").click()
    visitor.failed("model_failed")
    visitor.sees("Recalled 1 from memory")
    visitor.sees("30 tokens in, 2 out")
    visitor.leave()


@pytest.mark.page_only
def test_two_agents_of_one_name_keep_their_sessions_apart(visitor: Visitor) -> None:
    def forward(route: Route) -> None:
        route.continue_(url=route.request.url.replace("/other/", "/"))

    talk(visitor, "At the root.")
    page = visitor.context.new_page()
    page.route("**/other/**", forward)
    page.goto(f"{visitor.origin}/other/")
    expect(page.locator("#agent")).not_to_be_empty()
    expect(page.locator("#sessions a")).to_have_count(0)
    page.get_by_label("Message").fill("In a folder.")
    page.keyboard.press("Enter")
    expect(page.locator(".outcome")).to_contain_text("committed as turn 1")
    expect(page.locator("#sessions a span")).to_have_text(["In a folder."])
    expect(visitor.page.locator("#sessions a span")).to_have_text(["At the root."])


@pytest.mark.page_only
def test_an_open_edit_survives_the_turn_of_another_tab(visitor: Visitor) -> None:
    talk(visitor, "Mine.")
    other = visitor.context.new_page()
    other.goto(visitor.page.url)
    other.get_by_role("button", name="Edit").click()
    other.get_by_label("Edited message").fill("Half a thought")
    visitor.say("Yours.")
    visitor.committed(2)
    expect(other.locator(".outcome")).to_have_count(2)
    expect(other.get_by_label("Edited message")).to_have_value("Half a thought")
    assert other.evaluate("document.activeElement.ariaLabel") == "Edited message"


@pytest.mark.page_only
def test_text_is_copied_where_the_browser_has_no_clipboard(
    browser: Browser, fleet: Fleet, provider: Provider
) -> None:
    """As on HTTP by name."""
    probe = fleet.fresh(UI=1, ALLOWED_HOSTS=NAME)
    port = probe.address[1]
    probe.stop()
    named = fleet.fresh(
        UI=1, PORT=port, ALLOWED_HOSTS=NAME, ALLOWED_ORIGINS=f"http://{NAME}:{port}"
    )
    visitor = Visitor(browser, named, provider)
    visitor.page.goto(origin_of(named))
    assert visitor.page.evaluate("navigator.clipboard") is None
    visitor.say("Show me.", ["Copied text."])
    visitor.committed(1)
    button = visitor.page.get_by_title("Copy this reply")
    button.click()
    expect(button).to_have_text("Copied")
    prompt = visitor.page.get_by_label("Message")
    prompt.focus()
    visitor.page.keyboard.press("Control+V")
    expect(prompt).to_have_value("Copied text.")
    visitor.context.close()


SELECT = """() => {
    const text = document.querySelector('.markdown p').firstChild
    getSelection().setBaseAndExtent(text, 0, text, 8)
}"""


@pytest.mark.page_only
def test_a_selection_in_a_paragraph_that_arrives_is_kept(visitor: Visitor) -> None:
    gate = threading.Event()
    visitor.say("Slowly.", ["Selected words **and** more", Hold(gate), " and more, `code` too."])
    visitor.sees("Selected words")
    visitor.page.evaluate(SELECT)
    gate.set()
    visitor.committed(1)
    assert visitor.page.evaluate("String(getSelection())") == "Selected"
    assert visitor.page.locator(".markdown").inner_text() == (
        "Selected words and more and more, code too."
    )


@pytest.mark.page_only
def test_a_comment_of_the_stream_is_no_event(visitor: Visitor) -> None:
    events: list[dict[str, object]] = [
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "Said after a silence."},
        {"type": "finish", "messageMetadata": {"turn": 1}},
    ]
    parts = [": keep-alive\n\n", *(f": keep-alive\ndata: {json.dumps(it)}\n\n" for it in events)]

    def answer(route: Route) -> None:
        route.fulfill(body="".join(parts), content_type="text/event-stream")

    visitor.page.route("**/api/chat", answer)
    visitor.type("Wait.")
    visitor.sees("Said after a silence.")
    visitor.committed(1)


@pytest.mark.page_only
def test_enter_that_confirms_an_input_method_sends_nothing(visitor: Visitor) -> None:
    prompt = visitor.page.get_by_label("Message")
    prompt.fill("にほん")
    enter = "new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, cancelable: true})"
    assert prompt.evaluate(f"(prompt) => prompt.dispatchEvent({enter})")
    expect(visitor.page.locator(".user")).to_have_count(0)
    visitor.page.keyboard.press("Enter")
    visitor.committed(1)
