"""`chat --session` shows the turn that a server runs in the session, and may leave it running."""

import re
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.background.follower import Background
from tests.conformance.chat import echoed
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold, Think
from tests.stores.agents import Agents, Replica, command
from tests.support.pseudo_terminal import CTRL_C, CTRL_D, ENTER, PROMPT, PseudoTerminal
from tests.ui.chat_page import Page, unique

RUNNING = "A turn of this session is running. To leave it running, press Ctrl-C."
Open = Callable[..., PseudoTerminal]


@pytest.fixture
def replica(agents: Agents) -> Replica:
    return agents.pair()[0]


@pytest.fixture
def chat(replica: Replica, provider: Provider) -> Background:
    return Background(replica.server, provider)


@pytest.fixture
def open_chat(replica: Replica, provider: Provider) -> Iterator[Open]:
    """Start `chat` in a terminal, at the store of the server."""
    started: list[PseudoTerminal] = []
    home = replica.home
    variables = {
        **home.target.provider(provider.origin),
        **home.store.environment(home.store.address),
    }

    def open_chat(*options: str) -> PseudoTerminal:
        words = [*command(home.project, "chat"), *options]
        started.append(PseudoTerminal(words, home.folder, variables))
        return started[-1]

    yield open_chat
    for terminal in started:
        terminal.close()


def test_a_running_turn_is_shown_from_its_beginning(
    chat: Background, open_chat: Open, gate: threading.Event
) -> None:
    chat.begin("One.", [Think("Let me think."), "It begins", Hold(gate), " and ends."])
    terminal = open_chat("--session", chat.session)
    terminal.expect(re.escape(RUNNING))
    terminal.expect("Let me think")
    terminal.expect("It begins")
    assert not re.search(PROMPT, terminal.shown)
    gate.set()
    terminal.expect("It begins and ends")
    terminal.expect(PROMPT)
    terminal.type(f"Two.{chat.tag}{ENTER}")
    terminal.expect(PROMPT)
    one = [("user", "One."), ("assistant", "It begins and ends.")]
    assert chat.recalled("Three.") == [*one, *echoed("Two.")]
    terminal.type(CTRL_D)
    assert terminal.exit_code() == 0


def test_ctrl_c_leaves_the_turn_running(
    chat: Background, open_chat: Open, gate: threading.Event
) -> None:
    chat.begin("One.", ["It begins", Hold(gate), " and ends."])
    terminal = open_chat("--session", chat.session)
    terminal.expect("It begins")
    terminal.type(CTRL_C)
    terminal.expect("The turn continues.")
    terminal.expect(PROMPT)
    gate.set()
    assert chat.follow().rest()[-1].data["turn"] == 1


@pytest.mark.full
def test_a_turn_of_use_chat_is_shown(
    replica: Replica, provider: Provider, open_chat: Open, gate: threading.Event
) -> None:
    page = Page(replica.server)
    text = unique("Hello")
    provider.script(text, [Think("Hmm."), "Slow, ", Hold(gate), "but sure."])
    page.act({"do": "leave", "text": text})
    terminal = open_chat("--session", page.id)
    terminal.expect("Hmm")
    terminal.expect("Slow,")
    gate.set()
    terminal.expect("Slow, but sure")
    terminal.expect(PROMPT)
    assert "Error" not in terminal.seen


@pytest.mark.parametrize("is_page", [False, True])
@pytest.mark.full
def test_the_error_of_the_turn_is_shown(
    replica: Replica,
    provider: Provider,
    open_chat: Open,
    gate: threading.Event,
    is_page: bool,
) -> None:
    chat = Background(replica.server, provider)
    if is_page:
        page = Page(replica.server)
        text = unique("Hello")
        provider.script(text, ["It begins", Hold(gate)])
        page.act({"do": "leave", "text": text})
        chat = Background(replica.server, provider, page.id)
    else:
        chat.begin("One.", ["It begins", Hold(gate)])
    terminal = open_chat("--session", chat.session)
    terminal.expect("It begins")
    assert chat.stop() is True
    terminal.expect(r"The turn was stopped; it was not saved. \(turn_stopped\)")
    terminal.expect(PROMPT)


@pytest.mark.full
def test_the_loss_of_the_server_is_shown(
    agents: Agents, chat: Background, open_chat: Open, replica: Replica, gate: threading.Event
) -> None:
    dying = agents.fresh(replica.home)
    lost = chat.on(dying.server)
    lost.begin("One.", ["It begins", Hold(gate)])
    terminal = open_chat("--session", chat.session)
    terminal.expect("It begins")
    dying.server.signal(signal.SIGKILL)
    terminal.expect(r"The process ended during the turn; .* \(turn_lost\)")
    terminal.expect(PROMPT)
    agents.discard(dying)


def test_without_a_running_turn_the_prompt_appears(
    chat: Background, provider: Provider, open_chat: Open, gate: threading.Event
) -> None:
    chat.begin("One.", ["It has ended."])
    assert chat.follow().rest()[-1].name == "done"
    ada = Background(chat.server, provider, actor="ada")
    ada.begin("One.", ["It is hers", Hold(gate)])
    for options, error in (
        (("--session", chat.session), ""),
        (("--session", f"{chat.session}-new"), ""),
        ((), ""),
        (("--session", ada.session, "--actor", "bob"), "(session_forbidden)"),
    ):
        terminal = open_chat(*options)
        terminal.expect(PROMPT)
        assert RUNNING not in terminal.seen
        assert "It " not in terminal.seen
        assert error in terminal.seen
        terminal.type(CTRL_D)
        assert terminal.exit_code() == 0
    gate.set()
