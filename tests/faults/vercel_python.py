"""Faults in what the AI SDK's render in Python has of its own: how a turn runs."""

from tests.faults.fault import Fault

TURN = "src/app/turn.py"
TIMEOUT = "asyncio.timeout(parts.settings.turn_timeout_seconds)"
OPENED = (
    "        async with parts.sessions.open(ask) as session:\n"
    "            if last := session.replay():\n"
    '                await emit(last["reply"])\n'
    "                return last\n"
    "            try:\n"
    f"                async with {TIMEOUT}:\n"
)
COMMIT = 'session.commit(_snapshot([ai.user_message("x")]), "")'
AFTER_TIMEOUT = '                raise AgentError("turn_timeout") from None\n'
STAGED = "                    staged = _stage(session.snapshot, parts.settings.history_messages)\n"
FAILED = '    if reason is None or reason == "error":\n'
UNFINISHED = '    if reason != "stop" and not (calls and reason == "tool_call"):\n'

FAULTS = [
    Fault(
        "every turn is committed, however it ended",
        TURN,
        AFTER_TIMEOUT,
        f"{AFTER_TIMEOUT}            finally:\n                await {COMMIT}\n",
    ),
    Fault(
        "a failed turn is committed",
        TURN,
        AFTER_TIMEOUT,
        f"{AFTER_TIMEOUT}            except AgentError:\n"
        f"                await {COMMIT}\n                raise\n",
    ),
    Fault(
        "a cancelled turn is committed",
        TURN,
        AFTER_TIMEOUT,
        f"{AFTER_TIMEOUT}            except asyncio.CancelledError:\n"
        f"                await {COMMIT}\n                raise\n",
    ),
    Fault(
        "a turn that takes too long is committed",
        TURN,
        AFTER_TIMEOUT,
        f"                await {COMMIT}\n{AFTER_TIMEOUT}",
    ),
    Fault(
        "a turn is committed before it runs",
        TURN,
        STAGED,
        f"{STAGED}                    await {COMMIT}\n",
    ),
    Fault("the commit is forgotten", TURN, "await session.commit(", "dict("),
    Fault(
        "only the messages of the turn are committed",
        TURN,
        "_snapshot([*staged, *added])",
        "_snapshot(added)",
    ),
    Fault(
        "the prompt is not committed",
        TURN,
        "[prompt, *run.messages[len(messages) :]]",
        "run.messages[len(messages) :]",
    ),
    Fault(
        "only the reply of a turn is committed",
        TURN,
        "[prompt, *run.messages[len(messages) :]]",
        "[prompt, run.messages[-1]]",
    ),
    Fault("the history is not loaded", TURN, "if committed else []", "if not committed else []"),
    Fault("an empty reply is a turn", TURN, "    if not run.messages[-1].text:\n", "    if 0:\n"),
    Fault("a blank reply is a turn", TURN, "not is_blank(p.text)", "p.text"),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        "if not run.messages[-1].text:",
        'if is_blank("".join(said)):',
    ),
    Fault(
        "a reply that is cut by its length is a failure of the model",
        TURN,
        FAILED,
        '    if reason in {None, "error", "length"}:\n',
    ),
    Fault(
        "a reply that is cut by its length is a turn",
        TURN,
        UNFINISHED,
        '    if reason not in {"stop", "tool_call", "length"}:\n',
    ),
    Fault(
        "a filtered reply is a turn",
        TURN,
        UNFINISHED,
        '    if reason not in {"stop", "tool_call", "content_filter"}:\n',
    ),
    Fault(
        "a turn that runs out of steps is a turn",
        TURN,
        '        raise AgentError("reply_incomplete", detail=f"{self.max_steps} steps")\n',
        '        context.add(ai.assistant_message("Enough."))\n',
    ),
    Fault("steps are not limited", TURN, "range(self.max_steps)", "range(10**9)"),
    Fault("a turn may take for ever", TURN, TIMEOUT, "asyncio.timeout(None)"),
    Fault(
        "the time that a turn waits for its session is counted",
        TURN,
        f"    try:\n{OPENED}",
        "    arrived = asyncio.get_running_loop().time()\n    try:\n"
        + OPENED.replace("timeout(", "timeout_at(arrived + "),
    ),
    Fault(
        "a cancelled turn is a failure of the model",
        TURN,
        "    except Exception as error:\n        while",
        "    except BaseException as error:\n        while",
    ),
    Fault(
        "an error of the turn is a failure of the model",
        TURN,
        "        if isinstance(error, AgentError):\n            raise error from None\n",
        "",
    ),
    Fault(
        "errors stay in their groups",
        TURN,
        "        while isinstance(error, ExceptionGroup):\n"
        "            error = error.exceptions[0]\n",
        "",
    ),
    Fault(
        "the system prompt is stored with the session",
        TURN,
        "[prompt, *run.messages[len(messages) :]]",
        "[messages[0], prompt, *run.messages[len(messages) :]]",
    ),
    Fault(
        "a chunk is emitted twice",
        TURN,
        "await emit(said[-1])\n",
        "await emit(said[-1])\n                    await emit(said[-1])\n",
    ),
    Fault("chunks are not emitted", TURN, "await emit(said[-1])\n", "pass\n"),
    Fault(
        "the reply is the text of the last step only",
        TURN,
        '    return "".join(said), ',
        "    return run.messages[-1].text, ",
    ),
    Fault("half a surrogate pair is emitted", TURN, "well_formed(event.chunk)", "event.chunk"),
    Fault(
        "the history is not cut",
        TURN,
        "snapshot, parts.settings.history_messages",
        "snapshot, 10**9",
    ),
    Fault(
        "the history is one message shorter than allowed",
        TURN,
        "if len(stored) - s <= limit",
        "if len(stored) - s < limit",
    ),
    Fault(
        "the history may be a turn longer than allowed",
        TURN,
        "if len(stored) - s <= limit",
        "if len(stored) - s <= limit + 2",
    ),
    Fault(
        "the history is cut between a tool call and its result",
        TURN,
        'if message["role"] == "user"',
        'if message["role"] in {"user", "tool"}',
    ),
    Fault(
        "the history is cut in front of a reply",
        TURN,
        'if message["role"] == "user"',
        'if message["role"] in {"user", "assistant"}',
    ),
    Fault("a long turn is cut", TURN, "<= limit), starts[-1])", "<= limit), len(stored) - limit)"),
    Fault("a long turn is forgotten", TURN, "<= limit), starts[-1])", "<= limit), len(stored))"),
    Fault("a replay emits nothing", TURN, 'await emit(last["reply"])\n', "pass\n"),
    Fault(
        "a replay runs the turn as well",
        TURN,
        '                await emit(last["reply"])\n                return last\n',
        '                await emit(last["reply"])\n',
    ),
    Fault(
        "a caller reads what the model's exception says",
        TURN,
        'raise AgentError("model_failed", detail=describe(error))',
        'raise AgentError("model_failed", str(error))',
    ),
    Fault(
        "the log quotes what the model's exception says",
        TURN,
        "detail=describe(error)",
        "detail=str(error)",
    ),
]
