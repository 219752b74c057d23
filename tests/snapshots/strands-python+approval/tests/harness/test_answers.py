"""An approval leaves the work of other hooks unchanged."""

from typing import Any

from client import Client, Response, app
from script import Reply, ToolCall
from strands import ToolContext, tool
from strands.hooks import AfterToolsEvent, BeforeToolCallEvent

from my_agent.harness.capability import Capability
from my_agent.harness.contract import Turn
from my_agent.harness.runtime import Runtime


@tool(context=True)
def book(tool_context: ToolContext) -> str:
    """Book a seat that a person chooses."""
    return str(tool_context.interrupt("seat"))


def grant(event: BeforeToolCallEvent) -> None:
    """Answer an interrupt without a person."""
    if event.interrupt("gate", response="granted") != "granted":
        event.cancel_tool = "The gate is closed."


def remind(event: AfterToolsEvent) -> None:
    """Add a text to the results."""
    event.message["content"].insert(0, {"text": "Reminder."})


class Trips(Capability):
    """Has the tool `book`, and hooks."""

    def tools(self) -> list[Any]:
        return [book]

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        options.setdefault("hooks", []).extend([grant, remind])


async def book_a_seat() -> tuple[Client, Response]:
    """Run a turn that waits, and approve its call."""
    settings = app.settings_class()
    capabilities = [*app.make_capabilities(settings), Trips(settings, [], app.load)]
    runtime = Runtime(settings, app.load(), capabilities)
    client = Client(ToolCall("book", {}), Reply("Done."), runtime=runtime)
    waiting = await client.say("Book.", session="s")
    approve = [call["id"] for call in waiting.body["waiting"]]
    return client, await client.post({"approve": approve}, session="s")


async def test_a_text_that_a_hook_adds_follows_the_results() -> None:
    client, response = await book_a_seat()
    assert response.reply == "Done."
    request = ["user: Book.", "tool call: book", "tool result", "user: Reminder."]
    assert client.model.requests[-1] == request


async def test_an_answer_of_a_hook_stays() -> None:
    client, _ = await book_a_seat()
    session = await client.runtime.sessions.read("s", None)
    content = session.data["messages"][2]["content"]
    assert content[0]["toolResult"]["content"] == [{"text": "yes"}]
