"""POST and GET /api/chat: the UI message stream of the AI SDK, for its useChat."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from . import contract
from .capability import Capability, Routes
from .contract import SESSION_HEADER, AgentError, ToolCall, ToolResult, Turn
from .requests import parse_json, read_actor, receive
from .runtime import Runtime
from .server import Events, relay
from .sessions import Snapshot
from .stored_messages import read_turns

STREAM_HEADER = "x-vercel-ai-ui-message-stream"
Part = dict[str, Any]


class ChatRoute(Capability):
    """The routes for a page with useChat; the id of the chat is that of the session."""

    # Adds details to the text of an error, for callers who may see them.
    advise: Callable[[AgentError], str] = staticmethod(lambda failure: "")

    def routes(self) -> Routes:
        one_read = asyncio.Lock()

        async def post(request: Request, runtime: Runtime) -> Response:
            with runtime.turns.reading():
                turn = await _read_turn(request, runtime)
            response = await relay(request, runtime, turn, UiEvents(turn, self.advise))
            response.headers[STREAM_HEADER] = "v1"
            return _private(request, response)

        async def get(request: Request, runtime: Runtime) -> Response:
            ids = request.query_params.getlist("id")
            session_id = _read_id(request, ids[0] if len(ids) == 1 else None)
            actor = read_actor(request, runtime)
            with runtime.turns.reading():
                async with one_read:  # a large session takes all of the process for a moment
                    snapshot = await runtime.sessions.read(session_id, actor)
                    text = _json(_ui_messages(snapshot) if snapshot else [])
                    await asyncio.sleep(0.01)  # serves other requests
            response = Response(text, headers=contract.NO_SNIFF, media_type="application/json")
            return _private(request, response)

        async def resume(request: Request, runtime: Runtime) -> Response:
            # There is nothing to resume: a turn ends when its client leaves.
            return Response(status_code=204, headers={"Cache-Control": "no-store"})

        return {"POST /api/chat": post, "GET /api/chat": get, "GET /api/chat/{id}/stream": resume}


def _private(request: Request, response: Response) -> Response:
    response.headers[SESSION_HEADER] = request.state.session_id
    response.headers["Cache-Control"] = "no-store"
    return response


class UiEvents(Events):
    """A reply as the parts of the UI message stream; tools are dynamic, as a page declares none."""

    def __init__(self, turn: Turn, advise: Callable[[AgentError], str]) -> None:
        self._turn, self._advise = turn, advise
        self._texts, self._is_text, self._has_begun = 0, False, False

    def start(self) -> str:
        """Return the part with the id of the reply."""
        return _part("start", messageId=_reply_id(self._turn.key))

    def chunk(self, chunk: contract.Chunk) -> str:
        """Return the parts of a chunk; recalled memories come before the first."""
        parts = self._begin()
        if isinstance(chunk, str):
            return parts + self._text(chunk)
        parts += self._end_text()
        if isinstance(chunk, ToolCall):
            use = {"toolName": chunk.name, "input": _plain(chunk.input), "dynamic": True}
            return parts + _part("tool-input-available", toolCallId=chunk.id, **use)
        if chunk.is_error:
            fields = {"errorText": chunk.text, "dynamic": True}
            return parts + _part("tool-output-error", toolCallId=chunk.id, **fields)
        fields = {"output": chunk.text, "dynamic": True}
        return parts + _part("tool-output-available", toolCallId=chunk.id, **fields)

    def done(self, turn: Turn, result: dict[str, Any]) -> str:
        """Return the last parts of a committed turn."""
        metadata = {
            "turn": turn.number,
            "milliseconds": turn.milliseconds,
            "inputTokens": turn.input_tokens,
            "outputTokens": turn.output_tokens,
        }
        finish = _part("finish", finishReason="stop", messageMetadata=metadata)
        return self._end_text() + finish + _DONE

    def error(self, failure: AgentError) -> str:
        """Return the last parts of a turn that failed; nothing of it was kept."""
        text = f"{failure.type}: {failure}{self._advise(failure)}"
        return _part("error", errorText=text) + _DONE

    def _begin(self) -> str:
        if self._has_begun:
            return ""
        self._has_begun = True
        texts = self._turn.notes.get("recalled", list)()
        return _part("data-recalled", data=texts) if texts else ""

    def _text(self, text: str) -> str:
        if not text:
            return ""
        start, self._is_text = not self._is_text, True
        self._texts += start
        parts = _part("text-start", id=f"text-{self._texts}") if start else ""
        return parts + _part("text-delta", id=f"text-{self._texts}", delta=text)

    def _end_text(self) -> str:
        is_text, self._is_text = self._is_text, False
        return _part("text-end", id=f"text-{self._texts}") if is_text else ""


async def _read_turn(request: Request, runtime: Runtime) -> Turn:
    """Read the turn in the messages of useChat, of which only the last counts."""
    body = parse_json(await receive(request, runtime.settings.max_body_bytes))
    if not isinstance(body, dict):
        raise AgentError("invalid_request", "The body must be an object.")
    session_id = _read_id(request, body.get("id"))
    messages = body.get("messages")
    messages = [body.get("message")] if messages is None else messages
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        raise AgentError("invalid_request", "The last message must be one of role user.")
    if body.get("trigger") == "submit-message" and body.get("messageId") is not None:
        what = "A message that was sent cannot be changed: send another one."
        raise AgentError("invalid_request", what)
    parts = last.get("parts")
    if not isinstance(parts, list) or not all(map(_is_text, parts)):
        raise AgentError("invalid_request", "The parts of a message must be texts.")
    text = "".join(part["text"] for part in parts)
    prompt = contract.check_prompt(text, runtime.settings.max_prompt_chars)
    actor, key = read_actor(request, runtime), last.get("id")
    if not isinstance(key, str) or not re.fullmatch(contract.KEY, key):
        what = "The id of a message is 1 to 128 visible ASCII characters."
        raise AgentError("invalid_request", what)
    return Turn(session_id, actor, key, prompt, headers=request.headers)


def _read_id(request: Request, id: object) -> str:
    if isinstance(id, str):  # assistant-ui makes such ids
        id = re.sub("^__(?=LOCALID_)", "", id)
    if not isinstance(id, str) or not re.fullmatch(contract.SESSION_ID, id):
        raise AgentError("invalid_session_id")
    request.state.session_id = id
    return id


def _is_text(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "text"
    return is_text and isinstance(part.get("text"), str)


def _ui_messages(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the messages of a session; the id of the last prompt is its key, for a replay."""
    last, turns = snapshot["app_data"], read_turns(snapshot["data"]["messages"])
    messages = []
    for turn, (prompt, chunks) in enumerate(turns, last["turn"] - len(turns) + 1):
        id = last["key"] if turn == last["turn"] and last["key"] else f"turn-{turn}"
        part = {"type": "text", "text": prompt}
        messages.append({"id": id, "role": "user", "parts": [part]})
        reply = {"id": _reply_id(id), "role": "assistant", "parts": _parts(chunks)}
        messages.append({**reply, "metadata": {"turn": turn}})
    return messages


def _parts(chunks: Sequence[contract.Chunk]) -> list[Part]:
    parts, tools = list[Part](), dict[str, Part]()
    for chunk in chunks:
        if isinstance(chunk, ToolCall):
            use = {"toolName": chunk.name, "toolCallId": chunk.id, "input": _plain(chunk.input)}
            tools[chunk.id] = {"type": "dynamic-tool", **use, "state": "input-available"}
            parts.append(tools[chunk.id])
        elif isinstance(chunk, ToolResult):
            done = {"state": "output-available", "output": chunk.text}
            failed = {"state": "output-error", "errorText": chunk.text}
            tools.get(chunk.id, {}).update(failed if chunk.is_error else done)
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += chunk
        else:
            parts.append({"type": "text", "text": chunk, "state": "done"})
    return parts


def _reply_id(id: str | None) -> str:
    return f"{id}-reply"


def _plain(input: Any) -> Any:
    """Return the input of a tool as JSON, which has no NaN."""
    return json.loads(json.dumps(input, default=str), parse_constant=str)


def _json(data: Any) -> str:
    return contract.well_formed(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _part(type: str, **fields: Any) -> str:
    return f"data: {_json({'type': type, **fields})}\n\n"


_DONE = "data: [DONE]\n\n"
