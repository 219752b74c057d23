"""Tools that answer with an image: it is committed as what it was, and the model sees it again."""

import subprocess
from base64 import b64encode

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call
from tests.conformance.waiting import ASKED, answer, delete, ids
from tests.installed import installed
from tests.support.files import PDF, sent

PHOTO = "R0lGODlh/wA="  # the bytes of the tool in base64


def test_an_image_of_a_tool_is_part_of_the_session(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.shared(), provider)
    reply = chat.say("Look.", [Call("photo", {})], ["A gif."])
    assert reply.turn == 1, reply
    assert chat.say("What was it?").turn == 2
    calls = [call.request["messages"] for call in provider.calls if chat.tag in repr(call.request)]
    first, again = (
        [it for it in messages if PHOTO in repr(it) and it["role"] != "assistant"]
        for messages in (calls[1], calls[-1])
    )
    assert len(calls) == 3
    assert first == again != []


def test_an_image_waits_with_the_call_beside_it(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(), provider)
    reply = chat.say(ASKED, [Call("photo", {}), delete(chat)], ["Deleted."], headers=JSON)
    assert answer(chat, ids(reply)).json["turn"] == 1
    told = [call.request["messages"] for call in provider.calls if chat.tag in repr(call.request)]
    assert PHOTO in repr(told[-1])


def test_the_files_of_a_prompt_wait_with_its_call(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(), provider)
    chat.script(ASKED, [delete(chat)], ["Deleted."])
    body = {"prompt": ASKED + chat.tag, "files": [sent("report.pdf", "application/pdf", PDF)]}
    assert answer(chat, ids(chat.post(body, JSON))).json["turn"] == 1
    told = [call.request["messages"] for call in provider.calls if chat.tag in repr(call.request)]
    assert [b64encode(PDF).decode() in repr(messages) for messages in told] == [True, True]


STORED = r"""
import json
from my_agent.harness.messages import decode
from my_agent.harness.sessions.sessions import serialize
from my_agent.harness.store.messages import are_messages

SOURCE = {"source": {"bytes": bytes(range(256))}}
RESULT = {"toolUseId": "1", "status": "success", "content": [
    {"text": "a"}, {"json": SOURCE | {"source": {"bytes": "abc"}}},
    {"document": {"format": "pdf", "name": "a", **SOURCE}},
    {"image": {"format": "gif", "source": {"location": {"type": "s3", "uri": "s3://a"}}}},
]}
USE = {"toolUse": {"toolUseId": "1", "name": "a", "input": {"image": {"source": {"bytes": "abc"}}}}}
REASONING = {"reasoningContent": {"redactedContent": bytes([0, 255])}}
PENDING = {
    "assistant_message": {"role": "assistant", "content": [REASONING, USE]},
    "completed_tool_results": [RESULT],
}
for text in ("plain", "\ud800", "\ud83d\ude00"):
    data = {"interrupt_state": {"pending_tool_execution": PENDING}, "messages": [
        {"role": "user", "content": [{"text": text}]},
        {"role": "assistant", "content": [REASONING, USE]},
        {"role": "user", "content": [{"toolResult": RESULT}]},
    ]}
    stored = json.loads(serialize(data))
    assert are_messages(stored["messages"])
    decode(stored)
    data["messages"][0]["content"][0]["text"] = stored["messages"][0]["content"][0]["text"]
    assert stored == data, stored

# What is no base64 stays what it is.
for wrong in ({}, {"source": {}}, {"source": {"bytes": "a"}}, {"source": {"bytes": "\u00e9"}}):
    content = [{"text": "a"}, {"document": {"format": "pdf", "name": "a"} | wrong}]
    data = {"messages": [{"role": "user", "content": content}]}
    stored = json.loads(serialize(data))
    assert are_messages(stored["messages"])
    decode(stored)
    assert stored == data
"""


@pytest.mark.full
@pytest.mark.slow
def test_bytes_of_strands_python_survive_storage() -> None:
    project = installed("strands-python+valkey")
    python = project / ".venv" / "bin" / "python"
    done = subprocess.run([python, "-c", STORED], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
