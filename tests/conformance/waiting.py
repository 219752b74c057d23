"""Turns that wait: the calls that ask for an approval, and the answers."""

import json

from tests.conformance.chat import Chat
from tests.conformance.client import JSON, Reply
from tests.conformance.steps import Call, Step

ASKED = "Delete it."


def order(chat: Chat, name: str = "") -> str:
    return f"order{name}-of-{chat.session}"


def delete(chat: Chat, name: str = "") -> Call:
    """A call that waits for an approval."""
    return Call("delete_order", {"order_id": order(chat, name)})


def read(chat: Chat, name: str = "") -> Call:
    """A call that does not."""
    return Call("read_order", {"order_id": order(chat, name)})


def close(chat: Chat) -> Call:
    """A call of a final tool that needs no approval."""
    return Call("close_order", {"order_id": order(chat)})


def gate(chat: Chat, *tools: str) -> None:
    """From now on, these tools ask for an approval in this chat, and no others."""
    path = chat.server.folder / "gates"
    gates = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**gates, chat.session: tools}))


def runs(chat: Chat, tool: str = "delete_order", name: str = "") -> int:
    """How often a tool ran for an order of this chat."""
    path = chat.server.folder / "runs"
    lines = path.read_text().splitlines() if path.exists() else []
    return lines.count(f"{tool} {order(chat, name)}")


def ids(reply: Reply) -> list[str]:
    """What waits, as a reply in JSON says."""
    assert reply.status == 200, reply
    return [call["id"] for call in reply.json["waiting"]]


def ask(chat: Chat, *after: Step, headers: dict[str, str] = {}) -> list[str]:  # noqa: B006
    """Let a turn wait for one approval; `after` is what the model does when it goes on."""
    return ids(chat.say(ASKED, [delete(chat)], *after, headers={**JSON, **headers}))


def answer(
    chat: Chat,
    approve: list[str] = [],  # noqa: B006
    deny: dict[str, str] = {},  # noqa: B006
    headers: dict[str, str] = {},  # noqa: B006
) -> Reply:
    denied = [{"id": id, "reason": reason} for id, reason in deny.items()]
    body = {name: value for name, value in (("approve", approve), ("deny", denied)) if value}
    return chat.post(body, {**JSON, **headers})
