"""Faults in what all renders in TypeScript share: sessions, the server, and reading a request."""

from tests.mutation.fault import Fault

SESSIONS = "src/harness/sessions/sessions.ts"
STORE = "src/harness/sessions/session_store.ts"
LOG = "src/harness/log.ts"
SERVER = "src/harness/http/server.ts"
TURNS = "src/harness/sessions/running_turns.ts"
REQUESTS = "src/harness/http/requests.ts"
CONTRACT = "src/harness/contract.ts"
DEADLINE = "src/harness/deadline.ts"
OWNER = "if (this.last && this.last.actor !== actor && !this.last.ownerless)"
GUARD = "checkAccess(request, runtime, needsToken, types)"
DRAINING = "    if (this.isDraining) throw new AgentError('draining')\n"
BODY = "  const call = readBody(body, sessionId, runtime)\n"
FITS = "at >= messages &&"
ABORT = "      for (const stop of this.tasks.values()) stop.abort(new AgentError('draining'))\n"

FAULTS = [
    # Sessions.
    Fault(
        "two turns of a session run at once",
        SESSIONS,
        "race([earlier, abort",
        "race([0, abort",
    ),
    Fault("a replay emits nothing", SESSIONS, "      turn.reply = last.reply\n", ""),
    Fault(
        "one turn less may wait",
        SESSIONS,
        "> this.settings.sessionQueue)",
        ">= this.settings.sessionQueue)",
    ),
    Fault(
        "who gave up waiting keeps the place",
        SESSIONS,
        "taking.finally(() => queue.turns--)",
        "taking.finally(() => signal.aborted || queue.turns--)",
    ),
    Fault(
        "who gives up waiting lets the next one in",
        SESSIONS,
        "Promise.all([earlier, end])",
        "end",
    ),
    Fault(
        "the queue of a session is never removed",
        SESSIONS,
        "        this.queues.delete(sessionId)\n",
        "",
    ),
    Fault("the oldest session goes first", STORE, "s.entries.get(", "s.entries.peek("),
    Fault("an idle session is never forgotten", STORE, "max, ttl, update", "max, update"),
    Fault(
        "the idle time of a session begins with its last commit",
        STORE,
        "updateAgeOnGet: true",
        "updateAgeOnGet: false",
    ),
    Fault("no actor counts as anyone", SESSIONS, OWNER, OWNER.replace("(", "(actor && ", 1)),
    Fault(
        "a session is ended in the name of nobody",
        SERVER,
        "sessions.end(sessionId, actor, stop)",
        "sessions.end(sessionId, null, stop)",
    ),
    Fault(
        "the actor is not stored",
        SESSIONS,
        "const { actor } = this.session",
        "const actor = null",
    ),
    Fault(
        "a turn without a key is replayed to the next one without",
        SESSIONS,
        "if (!last || !isRepeatable) return null",
        "if (!last) return null",
    ),
    Fault(
        "a replay needs no key that matches",
        SESSIONS,
        "(key === last.key)",
        "(last.key)",
    ),
    Fault(
        "the keys of older turns are forgotten",
        SESSIONS,
        "start.key === key && ",
        "!start && ",
    ),
    Fault(
        "turns are not counted",
        SESSIONS,
        "turn.number = this.number + 1 -",
        "turn.number = this.number -",
    ),
    Fault(
        "the history is not cut",
        SESSIONS,
        "length > historyMessages ?",
        "length > historyMessages + 1e9 ?",
    ),
    Fault(
        "the history is one turn shorter than allowed",
        SESSIONS,
        FITS,
        FITS.replace(">=", ">"),
    ),
    Fault(
        "the history may be a turn longer than allowed",
        SESSIONS,
        FITS,
        FITS.replace("at >=", "at + 2 >="),
    ),
    Fault(
        "the history is cut in the middle of a turn",
        SESSIONS,
        "[...summary, ...this.data.messages.slice(end)]",
        "[...summary, ...this.data.messages.slice(end - 1)]",
    ),
    Fault("a long turn is forgotten", SESSIONS, "this.turns.at(-1)?.at ?? 0", "1e9"),
    Fault("a session that ends is kept", STORE, "    this.entries.delete(sessionId)\n", ""),
    Fault("a turn may take for ever", DEADLINE, "seconds * 1000)", "seconds * 10_000)"),
    # The server.
    Fault("ping is never busy", SERVER, "turns.tasks.size > 0 || ", ""),
    Fault("all callers without a session share one", REQUESTS, "?? randomUUID()", "?? 'default'"),
    Fault("web pages from elsewhere may ping", SERVER, GUARD, f"if (needsToken) {GUARD}"),
    Fault("a server that drains takes new turns", TURNS, DRAINING, ""),
    Fault(
        "a session id that is not valid is echoed",
        REQUESTS,
        "if (contract.SESSION_ID.test(sessionId)) ",
        "",
    ),
    Fault(
        "a turn goes on when its client has left",
        SERVER,
        "  response.once('close', () => response.writableFinished || stop.abort())\n",
        "",
    ),
    Fault(
        "a turn that waits for its session gets no status",
        SERVER,
        "response.headersSent || turn.hasBegun",
        "true",
    ),
    Fault("Accept is ignored", SERVER, "= wantsEvents(request) ?", "= true ?"),
    Fault("events are sent before there is text", SERVER, "? !isBlank(chunk) :", "? true :"),
    Fault(
        "blank text that is held back is lost",
        SERVER,
        "buffered += events.formatChunk",
        "buffered = events.formatChunk",
    ),
    Fault(
        "a caller reads what an internal exception says",
        LOG,
        "new AgentError('internal_error', '', ",
        "new AgentError('internal_error', String(error), ",
    ),
    Fault(
        "the log quotes what an internal exception says",
        LOG,
        "\\n${String(stack).replace(String(message), '')}",
        "\\n${String(stack)}",
    ),
    Fault("a shutdown gives turns no time", TURNS, "sleep(graceSeconds * 1000,", "sleep(0,"),
    Fault("a shutdown waits for ever", TURNS, ", grace])", "])"),
    Fault("a shutdown leaves turns running", TURNS, ABORT, "      break\n"),
    # Reading a request.
    Fault("only the host is checked", REQUESTS, "isRead ? [] : origin)", "isRead ? [] : [])"),
    Fault("a body of any size is read", REQUESTS, "  if (size > maxBytes) {\n", "  if (false) {\n"),
    Fault(
        "the actor is checked before the body",
        REQUESTS,
        BODY,
        f"  readActor(request, runtime)\n{BODY}",
    ),
    Fault("any key is valid", REQUESTS, "(isNew || !contract.KEY.test(key))", "isNew"),
    Fault(
        "the custom actor header is ignored",
        CONTRACT,
        "[`${PREFIX}User-Id`, `${PREFIX}Custom-Actor-Id`]",
        "[`${PREFIX}User-Id`]",
    ),
    Fault("65 levels are not too deep", REQUESTS, "level > 64)", "level > 65)"),
    Fault("text that is not UTF-8 is mended", REQUESTS, "fatal: true", "fatal: false"),
    Fault("U+FEFF is not blank", CONTRACT, "{White_Space}\\ufeff]", "{White_Space}]"),
    Fault("a prompt may be too long", CONTRACT, " || [...value].length > maxChars)", ")"),
    Fault("half a surrogate pair is a prompt", CONTRACT, "!value.isWellFormed()", "false"),
]
