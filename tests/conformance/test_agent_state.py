"""agent.state of Strands: what tools keep there is part of a turn. The AI SDK has only messages."""

from tests.conformance.chat import Chat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call, Step
from tests.conformance.targets import TARGETS

VENDOR_TARGETS = [target for target in TARGETS if target.name.startswith("strands")]


def test_the_state_of_a_tool_rolls_back(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.shared(), provider)

    def remembered(text: str, number: int | None = None) -> str:
        steps: list[Step] = [[Call("remember", {"text": text})], ["Done."]]
        say = f"Keep {text}."
        reply = chat.replace(number, say, *steps) if number else chat.say(say, *steps)
        assert reply.turn == number or not number, reply
        role, result = chat.history(chat.calls(say)[-1])[-1]
        assert role == "result"
        return str(result)

    assert remembered("a") == "a"
    chat.say("Nothing.")
    assert remembered("b") == "a, b"
    assert remembered("c") == "a, b, c"
    assert remembered("d", 4) == "a, b, d"
    assert remembered("e", 2) == "a, e"
    assert remembered("f") == "a, e, f"
    assert remembered("g", 1) == "g"
