"""Streams of Chat Completions servers, and the strict ones that both languages make of them.

`vectors.json` has for each name what a server sends, as `text` or as the data of `events`, and what
the client of the SDK gets: deltas, `finish` for a reason, `usage`, and `error`. `*` is an id that
the server did not send.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rendered
from tests.installed import NODE

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
MAX_REPLY_BYTES = 1_000
BASE = {"id": str, "object": str, "created": int, "model": str}
MINTED = re.compile("[0-9a-f]{9}")

PYTHON = """
import json, sys
from types import ModuleType, SimpleNamespace
from pathlib import Path
harness = ModuleType('my_agent.harness')  # without its public names, which need libraries
harness.__path__ = [str(Path(sys.path[1], 'my_agent', 'harness'))]
sys.modules['my_agent.harness'] = harness
from my_agent.harness.models.chat_stream import ChatStream
settings = SimpleNamespace(max_reply_bytes=int(sys.argv[1]))
for line in sys.stdin:
    stream, output = ChatStream(settings), b""
    try:
        for piece in json.loads(line):
            output += stream.read(bytes.fromhex(piece))
        output += stream.end()
    except Exception as error:
        output += f"{error.type}: {error.detail}".encode()
    print(json.dumps(output.decode()))
"""
TYPESCRIPT = """
import { createInterface } from 'node:readline'
const { ChatStream } = await import(process.argv[1])
const settings = { maxReplyBytes: Number(process.argv[2]) }
for await (const line of createInterface({ input: process.stdin })) {
  const [stream, output] = [new ChatStream(settings), []]
  try {
    for (const piece of JSON.parse(line)) output.push(stream.read(Buffer.from(piece, 'hex')))
    output.push(stream.end())
  } catch ({ type, detail }) {
    output.push(Buffer.from(`${type}: ${detail}`))
  }
  console.log(JSON.stringify(Buffer.concat(output).toString()))
}
"""
Pieces = list[bytes]


def rewrite(
    language: str, rendered: Rendered, streams: list[Pieces], limit: int = MAX_REPLY_BYTES
) -> list[str]:
    """What a render's module makes of streams that arrive in pieces."""
    project = rendered(f"strands-{language}+openai-compatible")
    if language == "python":
        command = [sys.executable, "-c", PYTHON, str(limit)]
    else:
        module = (project / "src" / "harness" / "models" / "chat_stream.ts").as_uri()
        command = [str(NODE), "--input-type=module", "-e", TYPESCRIPT, module, str(limit)]
    lines = [json.dumps([piece.hex() for piece in pieces]) for pieces in streams]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "PYTHONUTF8": "1"}
    done = subprocess.run(
        command,
        input="\n".join(lines),
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def sent(vector: dict[str, Any]) -> bytes:
    if "text" in vector:
        return str(vector["text"]).encode()
    data = [it if isinstance(it, str) else json.dumps(it) for it in vector["events"]]
    return "".join(f"data: {it}\n\n" for it in data).encode()


def seen(output: str) -> list[Any]:
    """What the client of an SDK gets of a stream, which has to be strict."""
    events, rest = output.split("\n\n")[:-1], output.split("\n\n")[-1]
    assert rest == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [shown(event.removeprefix("data: ")) for event in events]


def shown(data: str) -> Any:
    if data == "[DONE]":
        return data
    chunk = json.loads(data)
    if "error" in chunk:
        return {"error": chunk["error"]["message"]}
    for key, kind in BASE.items():
        assert type(chunk[key]) is kind, f"{key} in {chunk}"
    assert chunk["object"] == "chat.completion.chunk"
    if not chunk["choices"]:
        return {"usage": chunk["usage"]} if "usage" in chunk else "no choices"
    [choice] = chunk["choices"]
    assert choice["index"] == 0
    for part in choice["delta"].get("tool_calls", []):
        if MINTED.fullmatch(part.get("id", "")):
            part["id"] = "*"
    reason = choice["finish_reason"]
    return choice["delta"] | ({"finish": reason} if reason else {})


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_stream_is_strict_wherever_it_is_split(language: str, rendered: Rendered) -> None:
    names, streams = list[str](), list[Pieces]()
    for vector in VECTORS:
        data = sent(vector)
        ways = [[data], [data[at : at + 1] for at in range(len(data))]]
        if vector.get("splits"):
            ways += [[data[:at], data[at:]] for at in range(1, len(data))]
        streams += ways
        names += [vector["name"]] * len(ways)
    expected = {vector["name"]: vector["expect"] for vector in VECTORS}
    outputs = rewrite(language, rendered, streams)
    for name, pieces, output in zip(names, streams, outputs, strict=True):
        assert seen(output) == expected[name], f"{name}, in {len(pieces)} pieces"


def chunk(delta: dict[str, Any]) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n".encode()


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_memory_is_limited(language: str, rendered: Rendered) -> None:
    most = 6 * MAX_REPLY_BYTES + 65_536
    part = {"function": {"name": "f", "arguments": "x" * 100}}
    text = "x" * 100
    outputs = rewrite(
        language,
        rendered,
        [
            [b"data: " + b"x" * 1_000] + [b"x" * 1_000] * (most // 1_000),
            [b"data: " + b"x" * 1_000 + b"\n"] * (1 + most // 1_000),
            [b'{"x": "' + b"x" * 1_000] + [b"x" * 1_000] * (most // 1_000),
            [chunk({"tool_calls": [part]})] * 11,
            [chunk({"reasoning_content": text})] * 11,
            [chunk({"reasoning": text})] * 11,
            [chunk({"reasoning_details": [{"type": "reasoning.text", "text": text}]})] * 11,
            [chunk({"tool_calls": [part]}), chunk({"reasoning": text})] * 6,
            [b": " + b"x" * 1_000 + b"\n"] * (10 + most // 1_000) + [b"data: [DONE]"],
        ],
    )
    refused = "reply_incomplete: MAX_REPLY_BYTES"
    *large, comments = outputs
    assert [output[-len(refused) :] for output in large] == [refused] * 8
    assert seen(comments) == [{"finish": "stop"}, "[DONE]"]


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_reasoning_counts_once_and_without_its_structure(language: str, rendered: Rendered) -> None:
    text = "x" * 10
    fields = {"format": "anthropic-claude-v1", "index": 0, "id": "reasoning-1", "text": text}
    detail = {"type": "reasoning.text", **fields, "signature": None}
    both = {"reasoning": text, "reasoning_content": text, "reasoning_details": [detail]}
    encrypted = {"type": "reasoning.encrypted", "format": "unknown", "index": 0, "data": text}
    parts = [
        chunk(both),
        chunk({"reasoning": "", "reasoning_details": [{**detail, "text": "", "signature": text}]}),
        chunk({"reasoning_details": [encrypted]}),
    ]
    count = MAX_REPLY_BYTES // len(text)
    streams = [[part] * count + [b"data: [DONE]"] for part in parts]
    longer = [[part] * (count + 1) for part in parts]
    outputs = rewrite(language, rendered, [*streams, *longer])
    for output in outputs[: len(streams)]:
        assert seen(output)[-2:] == [{"finish": "stop"}, "[DONE]"]
    for output in outputs[len(streams) :]:
        assert output.endswith("reply_incomplete: MAX_REPLY_BYTES")


@pytest.mark.parametrize("language", ["python", "typescript"])
@pytest.mark.full
def test_a_name_in_each_part_costs_no_more_in_a_longer_call(
    language: str, rendered: Rendered
) -> None:
    text = json.dumps({"x": "y" * 2_000_000})[:-1]

    def seconds(count: int) -> float:
        begin = {"index": 0, "id": "a", "function": {"name": "f", "arguments": text}}
        more = {"index": 0, "function": {"name": "f", "arguments": ', "z": {}'}}
        pieces = [chunk({"tool_calls": [begin]}), chunk({"tool_calls": [more]}) * count]
        began = time.monotonic()
        rewrite(language, rendered, [pieces], limit=3_000_000)
        return time.monotonic() - began

    usual = min(seconds(1) for _ in range(2))
    assert min(seconds(1_000) for _ in range(2)) < 3 * usual + 1
