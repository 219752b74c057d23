"""POST and GET /api/chat: the UI message stream of the AI SDK, for its useChat."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from starlette.requests import Request
from starlette.responses import Response

from .. import contract
from ..capability import Capability, Routes
from ..contract import (
    SESSION_HEADER,
    AgentError,
    Data,
    File,
    FileUrl,
    Reasoning,
    Source,
    ToolCall,
    ToolResult,
    Turn,
    TurnRequest,
    TurnResult,
)
from ..files import check_count, decode_file, plain_type
from ..runtime import Runtime
from ..sessions.sessions import PlacedRequest, Session, WaitingTurn
from ..settings import CoreSettings
from .requests import parse_json, read_actor
from .server import Events, relay
from .stored_messages import read_turns

STREAM_HEADER = "x-vercel-ai-ui-message-stream"
MAX_SAFE_INTEGER = 2**53 - 1  # JavaScript rounds larger integers
POSITION = "turn-([1-9][0-9]{0,14})"  # the id of the message of a turn without a key
Part = dict[str, Any]


class ChatRoute(Capability):
    """The routes for a page with useChat; the id of the chat is the session id."""

    # Returns details to append to an error message, or "".
    advise: Callable[[AgentError], str] = staticmethod(lambda failure: "")

    def routes(self) -> Routes:
        one_read = asyncio.Lock()

        async def post(request: Request, runtime: Runtime) -> Response:
            with runtime.turns.reading():
                call, last = await _read_turn(request, runtime)
            events = UiEvents(last, self.advise, is_exact=_is_exact(request))
            response = await relay(request, runtime, call, events)
            response.headers[SESSION_HEADER] = request.state.session_id
            return response

        async def get(request: Request, runtime: Runtime) -> Response:
            ids = request.query_params.getlist("id")
            session_id = _read_id(request, ids[0] if len(ids) == 1 else None)
            actor = read_actor(request, runtime)
            with runtime.turns.reading():
                async with one_read:  # a large session blocks the process for a moment
                    session = await runtime.sessions.read(session_id, actor)
                    text = _json(_ui_messages(session, is_exact=_is_exact(request)))
                    await asyncio.sleep(0.01)  # let other requests run before the next read
            response = Response(text, headers=contract.NO_SNIFF, media_type="application/json")
            response.headers[SESSION_HEADER] = session_id
            response.headers["Cache-Control"] = "no-store"
            return response

        async def resume(request: Request, runtime: Runtime) -> Response:
            # There is nothing to resume: a turn ends when its client leaves.
            return Response(status_code=204, headers={"Cache-Control": "no-store"})

        path = "/api/chat"
        stream = f"GET {path}/{{id:path}}/stream"
        return {f"POST {path}": post, f"GET {path}": get, stream: resume}


def _is_exact(request: Request) -> bool:
    """Whether a client can read large integers; other clients get them as strings, not rounded."""
    return "exact-numbers" in re.split(r"[\s,;]+", request.headers.get("Prefer", "").lower())


@dataclass(frozen=True)
class PageRequest(PlacedRequest):
    """A turn that follows the turns on the page, or replaces a turn."""

    id: str = ""  # the id of the user's message
    replaced_id: str | None = None  # the id of the message to replace
    previous_turn: int | None = None  # the number of the turn above, or None if unknown
    previous_id: str | None = None  # the id of the user's message in that turn
    last_turn: int | None = None  # the number of the last turn that the page shows

    def place(self, session: Session, turn: Turn) -> int:
        """Return the number of turns to keep. Set the key here, so that `begin` replays no turn."""
        waiting = session.waiting
        committed = waiting.turn - 1 if waiting else session.number  # committed turns on the page
        visible = committed + 1 if waiting else committed
        if visible and self.last_turn not in {None, visible}:
            raise _conflict()
        turn.key = self.id
        start = session.number - len(session.turns) + 1
        position = re.fullmatch(POSITION, self.replaced_id or "")
        numbers = _numbers(session)
        number = numbers.get(self.replaced_id or "")
        if number is None and self.previous_turn is not None:
            id = self.previous_id
            # The page may show a branch that the session no longer has.
            is_known = id is None or id in numbers or re.fullmatch(POSITION, id)
            if visible and self.previous_turn >= start and not is_known:
                raise _conflict()
            number = min(self.previous_turn, committed) + 1
        elif number is None and position:
            number = start + session.find(int(position[1]))
        elif number is None and self.replaced_id and visible and self.last_turn is None:
            raise _conflict()
        elif number is None:
            number = session.number + 1
        return min(max(number - start, 0), len(session.turns))


def _conflict() -> AgentError:
    message = "The session has changed. Reload it; nothing was saved."
    return AgentError("session_conflict", message)


class UiEvents(Events):
    """A reply as the parts of the UI message stream; tools are dynamic: a page declares none.

    `last` is the last message of the page: the user's, or the reply to continue.
    """

    headers = Events.headers | {"Cache-Control": "no-cache, no-store", STREAM_HEADER: "v1"}

    def __init__(self, last: Part, advise: Callable[[AgentError], str], *, is_exact: bool) -> None:
        self._advise = advise
        self._is_exact = is_exact
        goes_on = last["role"] == "assistant"
        answers = _read_answers(last)
        self._id = last["id"] if goes_on else _reply_id(last["id"])
        self._denied = [_call_id(denial["id"]) for denial in answers["deny"]]
        # The ids of the calls that the page shows.
        self._called = {*map(_call_id, answers["approve"]), *self._denied}
        self._open = ""  # the kind of the open part: text, reasoning or none
        self._parts = 0
        self._sources = 0
        self._has_begun = False

    def format_start(self) -> str:
        """Return the part with the id of the reply."""
        return _part("start", messageId=self._id)

    def format_chunk(self, chunk: contract.Chunk) -> str:
        """Return the parts of a chunk; recalled memories and denials come before the first."""
        parts = self._begin()
        if isinstance(chunk, str):
            return parts + self._delta("text", chunk)
        if isinstance(chunk, Reasoning):
            return parts + self._delta("reasoning", chunk.text)
        parts += self._end_part()
        if isinstance(chunk, Data):
            return parts + _part(f"data-{chunk.name}", data=_plain(chunk.value, self._is_exact))
        if isinstance(chunk, Source):
            fields = {"url": chunk.url, "title": chunk.title} if chunk.title else {"url": chunk.url}
            self._sources += 1
            return parts + _part("source-url", sourceId=f"source-{self._sources}", **fields)
        if isinstance(chunk, ToolCall):
            return parts + self._call(chunk.id, chunk.name, chunk.input)
        if chunk.id in self._denied:
            return parts
        if chunk.is_error:
            failure = {"errorText": chunk.text, "dynamic": True}
            return parts + _part("tool-output-error", toolCallId=chunk.id, **failure)
        output = _output_of(chunk, self._is_exact)
        success = {"output": output, "dynamic": True}
        parts += _part("tool-output-available", toolCallId=chunk.id, **success)
        return parts + "".join(
            _part("file", mediaType=file.media_type, url=_url_of(file)) for file in chunk.files
        )

    def format_result(self, result: TurnResult) -> str:
        """Return the last parts of a committed or pending turn."""
        parts = self._begin() + self._end_part()
        for call in result.waiting:
            id = _call_id(call.id)
            parts += self._call(id, call.name, call.input)
            parts += _part("tool-approval-request", approvalId=call.id, toolCallId=id)
        metadata = {
            "turn": result.turn,
            "milliseconds": self.turn.milliseconds,
            "inputTokens": result.usage.input_tokens,
            "cachedTokens": result.usage.cached_tokens,
            "outputTokens": result.usage.output_tokens,
        }
        if result.marks.get("dropped"):
            metadata["dropped"] = True
        reason = "tool-calls" if result.waiting else "stop"
        return parts + _part("finish", finishReason=reason, messageMetadata=metadata) + _DONE

    def format_error(self, failure: AgentError) -> str:
        """Return the last parts of a failed turn."""
        text = f"{failure.type}: {failure}{self._advise(failure)}"
        return _part("error", errorText=text) + _DONE

    def _begin(self) -> str:
        if self._has_begun:
            return ""
        self._has_begun = True
        texts = self.turn.recalled
        parts = _part("data-recalled", data=texts) if texts else ""
        return parts + "".join(_part("tool-output-denied", toolCallId=id) for id in self._denied)

    def _call(self, id: str, name: str, arguments: Any) -> str:
        if id in self._called:
            return ""
        self._called.add(id)
        use = {"toolName": name, "input": _plain(arguments, self._is_exact), "dynamic": True}
        return _part("tool-input-available", toolCallId=id, **use)

    def _delta(self, kind: str, text: str) -> str:
        """Return the parts for more of a text or of the reasoning."""
        if not text:
            return ""
        parts = ""
        if self._open != kind:
            parts = self._end_part()
            self._open = kind
            self._parts += 1
            parts += _part(f"{kind}-start", id=f"{kind}-{self._parts}")
        return parts + _part(f"{kind}-delta", id=f"{kind}-{self._parts}", delta=text)

    def _end_part(self) -> str:
        kind = self._open
        self._open = ""
        return _part(f"{kind}-end", id=f"{kind}-{self._parts}") if kind else ""


async def _read_turn(request: Request, runtime: Runtime) -> tuple[TurnRequest, Part]:
    """Return the turn that a page requests, and the last message of the page."""
    body = parse_json(await request.body())
    if not isinstance(body, dict):
        raise AgentError("invalid_request", "The body must be an object.")
    session_id = _read_id(request, body.get("id"))
    messages = body.get("messages")
    messages = [body.get("message")] if messages is None else messages
    last = _fields(messages[-1] if isinstance(messages, list) and messages else None)
    answers = _read_answers(last)
    is_answered = any(answers.values()) and isinstance(last.get("id"), str)
    if is_answered and (turn := runtime.read_request(answers, session_id)):
        return replace(turn, actor=read_actor(request, runtime), headers=request.headers), last
    if last.get("role") != "user":
        raise AgentError("invalid_request", "The last message must have role user.")
    replaced_id = body.get("messageId")
    last_seen = body.get("seen")
    if not isinstance(replaced_id, str | None) or not (last_seen is None or _is_number(last_seen)):
        message = "Send messageId as the id of a message, and seen as a turn number or 0."
        raise AgentError("invalid_request", message)
    parts = last.get("parts")
    if not isinstance(parts, list) or not all(_is_text(it) or _is_file(it) for it in parts):
        raise AgentError("invalid_request", "The parts of a message must be text or files.")
    text = "".join(part["text"] for part in parts if _is_text(part))
    prompt = contract.check_prompt(text, runtime.settings.max_prompt_chars)
    actor = read_actor(request, runtime)
    id = last.get("id")
    if not isinstance(id, str) or not re.fullmatch(contract.KEY, id):
        message = "The id of a message must have 1 to 128 visible ASCII characters."
        raise AgentError("invalid_request", message)
    is_repeat = body.get("trigger") == "regenerate-message"
    replaced_id = id if is_repeat else replaced_id
    previous_turn = None
    previous_id = None
    # assistant-ui sends all messages of its page, and its tools.
    if body.get("messages") and (len(messages) > 1 or "tools" in body):
        previous_turn, previous_id = _previous(messages[:-1])
    page = PageRequest(
        session_id,
        prompt,
        actor=actor,
        key=None if replaced_id else id,
        headers=request.headers,
        files=_read_files([*filter(_is_file, parts)], runtime.settings),
        id=id,
        replaced_id=replaced_id,
        previous_turn=previous_turn,
        previous_id=previous_id,
        last_turn=None if last_seen is None else int(last_seen),
    )
    return page, last


def _previous(messages: list[Any]) -> tuple[int, str | None]:
    """Return the number of the last turn in the messages, or 0, and the id of its prompt."""
    number = 0
    id = None
    prompt_id = None
    for message in map(_fields, messages):
        if message.get("role") == "user" and isinstance(message.get("id"), str):
            prompt_id = message["id"]
        turn = _fields(message.get("metadata")).get("turn")
        if _is_number(turn):
            number = int(turn)
            id = prompt_id
    return number, id


def _read_answers(message: Part) -> dict[str, list[Any]]:
    """Return a page's answers to pending calls, in the form of POST /invocations."""
    parts = message.get("parts")
    approved = list[Any]()
    denied = list[Any]()
    parts = parts if message.get("role") == "assistant" else None
    for part in map(_fields, parts if isinstance(parts, list) else []):
        answer = _fields(part.get("approval"))
        if part.get("state") == "approval-responded" and answer.get("approved") is True:
            approved.append(answer.get("id"))
        elif part.get("state") == "approval-responded":
            denied.append({name: answer[name] for name in ("id", "reason") if name in answer})
    return {"approve": approved, "deny": denied}


def _fields(value: Any) -> Part:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and value.is_integer() and 0 <= value < 2**53


def _read_id(request: Request, id: object) -> str:
    if isinstance(id, str):  # assistant-ui adds this prefix
        id = re.sub("^__(?=LOCALID_)", "", id)
    if not isinstance(id, str) or not re.fullmatch(contract.SESSION_ID, id):
        raise AgentError("invalid_session_id")
    request.state.session_id = id
    return id


def _is_text(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "text"
    return is_text and isinstance(part.get("text"), str)


def _is_file(part: Any) -> bool:
    is_file = isinstance(part, dict) and part.get("type") == "file"
    return is_file and all(isinstance(part.get(name), str) for name in ("mediaType", "url"))


def _read_files(parts: list[Part], settings: CoreSettings) -> list[File]:
    """Return the files of a message, whose URLs contain their data or are fetched later."""
    check_count(len(parts), settings)
    files = list[File]()
    for part in parts:
        url = part["url"]
        head, comma, data = url.partition(";base64,")
        name = part.get("filename")
        name = name if isinstance(name, str) else ""
        if re.match("https?:", url, re.IGNORECASE):
            media_type = plain_type(part["mediaType"])
            files.append(FileUrl(media_type=media_type, name=name, url=url))
            continue
        if not comma or not head.startswith("data:"):
            message = "Send a file as a data URL in base64, or as an https URL."
            raise AgentError("invalid_request", message)
        files.append(decode_file(part["mediaType"], data, name, settings))
    return files


def _numbers(session: Session) -> dict[str, int]:
    """Return turn numbers by the ids of their prompts. A prompt's id is the key of its turn."""
    if not session.last:
        return {}
    numbers = {session.last["key"]: session.number}  # the last request may have had its own key
    first = session.number - len(session.turns) + 1
    numbers |= {start["key"]: turn for turn, start in enumerate(session.turns, first)}
    if waiting := session.waiting:
        numbers[waiting.prompt_key or f"turn-{waiting.turn}"] = waiting.turn
    return {id: turn for id, turn in numbers.items() if id}


def _ui_messages(session: Session, *, is_exact: bool) -> list[dict[str, Any]]:
    """Return the messages of a session, including its pending turn."""
    stored = session.data["messages"]
    waiting = session.waiting
    start = session.turns[0]["at"] if session.turns else len(stored)  # after a summary
    turns = read_turns(stored[start:])
    ids = {turn: id for id, turn in _numbers(session).items()}
    first = session.number - len(turns) + 1
    exchanges = [
        (turn, prompt, files, _parts(chunks, is_exact))
        for turn, (prompt, files, chunks) in enumerate(turns, first)
    ]
    if waiting:
        exchanges = [exchange for exchange in exchanges if exchange[0] < waiting.turn]
        files = [file for _, files, _ in read_turns(waiting.messages) for file in files]
        parts = _waiting_parts(waiting, is_exact)
        exchanges.append((waiting.turn, waiting.prompt, files, parts))
    messages = _summary_note(first - 1) if start else list[Part]()
    for turn, prompt, files, parts in exchanges:
        id = ids.get(turn, f"turn-{turn}")
        prompt_part = {"type": "text", "text": prompt}
        file_parts = [*map(_file_part, files)]
        messages.append({"id": id, "role": "user", "parts": [prompt_part, *file_parts]})
        reply: Part = {"id": _reply_id(id), "role": "assistant", "parts": parts}
        messages.append({**reply, "metadata": {"turn": turn}})
    return messages


def _file_part(file: File) -> Part:
    fields = {"mediaType": file.media_type, "filename": file.name, "url": _url_of(file)}
    return {"type": "file", **fields}


def _url_of(file: File) -> str:
    return f"data:{file.media_type};base64,{b64encode(file.data).decode()}"


def _summary_note(turn: int) -> list[Part]:
    subject = f"Turns 1 to {turn} are" if turn > 1 else "Turn 1 is"
    text = f"{subject} gone: the agent has a summary of earlier messages."
    note: Part = {"id": "summary", "role": "system", "parts": [{"type": "text", "text": text}]}
    return [{**note, "metadata": {"turn": turn}}]


def _waiting_parts(waiting: WaitingTurn, is_exact: bool) -> list[Part]:
    """Return the finished parts and the pending calls of a turn, but not its running calls."""
    turns = read_turns(waiting.messages)
    parts = [part for _, _, chunks in turns for part in _parts(chunks, is_exact)]
    parts = [part for part in parts if part.get("state") != "input-available"]
    for call in waiting.tool_calls:
        parts += _parts([ToolCall(_call_id(call.id), call.name, call.input)], is_exact)
        parts[-1].update(state="approval-requested", approval={"id": call.id})
    return parts


def _call_id(approval: str) -> str:
    """Return the id of a pending call from the id of its approval."""
    return approval.rpartition(".")[0]


def _parts(chunks: Sequence[contract.StoredChunk], is_exact: bool) -> list[Part]:
    parts = list[Part]()
    tools = dict[str, Part]()
    for chunk in chunks:
        if isinstance(chunk, ToolCall):
            use = {"toolName": chunk.name, "toolCallId": chunk.id}
            arguments = _plain(chunk.input, is_exact)
            tools[chunk.id] = {
                "type": "dynamic-tool",
                **use,
                "input": arguments,
                "state": "input-available",
            }
            parts.append(tools[chunk.id])
        elif isinstance(chunk, ToolResult):
            output = _output_of(chunk, is_exact)
            success = {"state": "output-available", "output": output}
            failure = {"state": "output-error", "errorText": chunk.text}
            tools.get(chunk.id, {}).update(failure if chunk.is_error else success)
            parts += map(_file_part, chunk.files)
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += chunk
        else:
            parts.append({"type": "text", "text": chunk, "state": "done"})
    return parts


def _output_of(result: ToolResult, is_exact: bool) -> Any:
    """Return a tool's result: its value, or its text."""
    return result.text if result.value is None else _plain(result.value, is_exact)


def _reply_id(id: str) -> str:
    return f"{id}-reply"


def _plain(input: Any, is_exact: bool) -> Any:
    """Return the input of a tool as JSON, which has no NaN."""
    parse_int = int if is_exact else _read_integer
    return json.loads(json.dumps(input, default=str), parse_constant=str, parse_int=parse_int)


def _read_integer(digits: str) -> int | str:
    """Return an integer, or its digits if JavaScript would round it: people approve it."""
    number = int(digits)
    return number if abs(number) <= MAX_SAFE_INTEGER else digits


def _json(data: Any) -> str:
    return contract.well_formed(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _part(type: str, **fields: Any) -> str:
    return f"data: {_json({'type': type, **fields})}\n\n"


_DONE = "data: [DONE]\n\n"
