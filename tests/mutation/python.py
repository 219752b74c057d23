"""Faults in what all renders in Python share: sessions, the server, and reading a request."""

from tests.mutation.fault import Fault

SESSIONS = "src/my_agent/harness/sessions/sessions.py"
STORE = "src/my_agent/harness/sessions/session_store.py"
SERVER = "src/my_agent/harness/http/server.py"
LOG = "src/my_agent/harness/log.py"
TURNS = "src/my_agent/harness/sessions/running_turns.py"
REQUESTS = "src/my_agent/harness/http/requests.py"
CONTRACT = "src/my_agent/harness/contract.py"
LOCK = "            async with self._locks.setdefault(session_id, asyncio.Lock()):\n"
ENTRIES = "settings.session_idle_seconds\n"
OWNER = 'self.last["actor"] != actor'
GUARD = "        check_access(request, runtime, needs_token=not route.public, types=route.types)\n"
DRAINING = '        if self.is_draining:\n            raise AgentError("draining")\n'
BODY = "    call = _read_body(body, session_id, runtime)\n"

FAULTS = [
    # Sessions.
    Fault(
        "two turns of a session run at once",
        SESSIONS,
        LOCK,
        "            if self._locks.setdefault(session_id, asyncio.Lock()):\n",
    ),
    Fault(
        "all sessions wait for one lock",
        SESSIONS,
        LOCK,
        LOCK.replace("asyncio.Lock()", 'self._locks.setdefault("", asyncio.Lock())'),
    ),
    Fault(
        "a replay emits nothing",
        "src/my_agent/harness/contract.py",
        "self.texts = [reply]",
        "self.texts = []",
    ),
    Fault(
        "one turn less may wait",
        SESSIONS,
        "> self.settings.session_queue:",
        ">= self.settings.session_queue:",
    ),
    Fault(
        "a turn that is cancelled while it waits is counted for ever",
        SESSIONS,
        "        try:\n" + LOCK,
        "        lock = self._locks.setdefault(session_id, asyncio.Lock())\n"
        "        await lock.acquire()\n        lock.release()\n        try:\n" + LOCK,
    ),
    Fault(
        "the lock of a session is never removed",
        SESSIONS,
        "del self._users[session_id], self._locks[session_id]",
        "del self._users[session_id]",
    ),
    Fault("every session is kept", STORE, "if len(self) > self._capacity:", "if False:"),
    Fault("the oldest session goes first", STORE, "self.popitem()", "self.pop(max(self))"),
    Fault("an idle session is never forgotten", STORE, ENTRIES, "10**9\n"),
    Fault(
        "the idle time of a session begins with its last commit",
        STORE,
        "            self._entries.put(session_id, stored)\n",
        "            pass\n",
    ),
    Fault("no actor counts as anyone", SESSIONS, OWNER, f"actor and {OWNER}"),
    Fault(
        "the actor is not stored",
        "src/my_agent/harness/sessions/sessions.py",
        "LastTurn(actor=actor, turn",
        "LastTurn(actor=None, turn",
    ),
    Fault(
        "a turn without a key is replayed to the next one without",
        SESSIONS,
        "if not self.last or turn.key is None:",
        "if not self.last:",
    ),
    Fault(
        "a replay needs no key that matches",
        SESSIONS,
        'if turn.key == self.last["key"]:',
        "if turn.key:",
    ),
    Fault(
        "the keys of older turns are forgotten",
        SESSIONS,
        'start["key"] == turn.key:',
        "False:",
    ),
    Fault(
        "turns are not counted",
        "src/my_agent/harness/sessions/sessions.py",
        "turn.number = stage.number + 1",
        "turn.number = stage.number",
    ),
    Fault(
        "the history is not cut",
        "src/my_agent/harness/sessions/sessions.py",
        "if self.at > settings.history_messages:",
        "if self.at > settings.history_messages + 10**9:",
    ),
    Fault(
        "the history is one turn shorter than allowed",
        "src/my_agent/harness/sessions/sessions.py",
        "if at >= first and char_counts[at] >= first_chars)\n",
        "if at > first and char_counts[at] > first_chars)\n",
    ),
    Fault(
        "the history may be a turn longer than allowed",
        "src/my_agent/harness/sessions/sessions.py",
        "if at >= first and char_counts[at] >= first_chars)\n",
        "if at + 2 >= first and char_counts[at] >= first_chars)\n",
    ),
    Fault(
        "the history is cut in the middle of a turn",
        "src/my_agent/harness/sessions/sessions.py",
        "await self.shorten(next(cuts, end))\n",
        "self.history = self.history[least - 1 :]\n",
    ),
    Fault(
        "a long turn is forgotten",
        "src/my_agent/harness/sessions/sessions.py",
        "            end = starts[-1]\n",
        "            end = self.at\n",
    ),
    Fault("a session that ends is kept", STORE, "self._entries.pop(session_id, None)", "pass"),
    # The server.
    Fault(
        "ping is never busy",
        SERVER,
        "is_busy = runtime.turns.tasks or ",
        "is_busy = ",
    ),
    Fault("all callers without a session share one", REQUESTS, "str(uuid4())", '"default"'),
    Fault(
        "web pages from elsewhere may ping",
        SERVER,
        GUARD,
        f"        if not route.public:\n        {GUARD}",
    ),
    Fault("a server that drains takes new turns", TURNS, DRAINING, ""),
    Fault(
        "a reply does not name its session",
        SERVER,
        "    response.headers[SESSION_HEADER] = call.session_id\n",
        "",
    ),
    Fault(
        "a session id that is not valid is echoed",
        SERVER,
        'if re.fullmatch(contract.SESSION_ID, getattr(request.state, "session_id", "")):',
        'if getattr(request.state, "session_id", ""):',
    ),
    Fault(
        "a turn goes on when its client has left",
        "src/my_agent/harness/http/server.py",
        "    watch.add_done_callback(lambda _: task.cancel())\n",
        "",
    ),
    Fault(
        "Accept is ignored",
        SERVER,
        "Events() if wants_events(request) else None",
        "Events()",
    ),
    Fault(
        "events are sent before there is text",
        "src/my_agent/harness/http/server.py",
        " and not is_blank)",
        ")",
    ),
    Fault(
        "a turn that waits for its session gets no status",
        "src/my_agent/harness/http/server.py",
        "(has_status or events.turn.has_begun)",
        "True",
    ),
    Fault(
        "blank text that is held back is lost",
        "src/my_agent/harness/http/server.py",
        "buffered += text",
        "buffered = text",
    ),
    Fault(
        "a caller reads what an internal exception says",
        LOG,
        'AgentError("internal_error", detail',
        'AgentError("internal_error", str(error), detail',
    ),
    Fault(
        "the log quotes what an internal exception says",
        LOG,
        'log.error("%s\\n%s", describe(error)',
        'log.error("%s\\n%s", error',
    ),
    Fault("a shutdown waits for ever", TURNS, "timeout=grace_seconds", "timeout=None"),
    Fault(
        "a shutdown leaves turns running",
        "src/my_agent/harness/sessions/running_turns.py",
        "                task.cancel(*DRAINING)\n",
        "                self.tasks.discard(task)\n                break\n",
    ),
    Fault(
        "a turn that a shutdown cancels gets no answer",
        SERVER,
        '        raise AgentError("draining")\n    return task.result()',
        "        pass\n    return task.result()",
    ),
    Fault(
        "anyone may end a session",
        SERVER,
        "await runtime.sessions.end(id, actor)",
        "await runtime.sessions.store.end(id)",
    ),
    # Reading a request.
    Fault("only the host is checked", REQUESTS, "for origin in origins:", "for origin in ():"),
    Fault("a body of any size is read", REQUESTS, "if size <= max_bytes:", "if True:"),
    Fault(
        "the actor is checked before the body",
        REQUESTS,
        BODY,
        f"    read_actor(request, runtime)\n{BODY}",
    ),
    Fault(
        "the custom actor header is ignored",
        CONTRACT,
        '(PREFIX + "User-Id", PREFIX + "Custom-Actor-Id")',
        '(PREFIX + "User-Id",)',
    ),
    Fault("NaN is JSON", REQUESTS, "parse_constant=int, ", ""),
    Fault("65 levels are not too deep", REQUESTS, "MAX_LEVELS = 64 ", "MAX_LEVELS = 65 "),
    Fault(
        "text that is not UTF-8 is mended",
        REQUESTS,
        "body.decode()",
        'body.decode(errors="replace")',
    ),
    Fault("a prompt may be too long", CONTRACT, " or len(value) > max_chars:", ":"),
]
