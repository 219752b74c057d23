"""Faults in what the Strands render in Python has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN = "src/my_agent/harness/turn.py"
TIMEOUT = "time_limit(runtime.settings.turn_timeout_seconds)"
OPENED = (
    "    async with (\n"
    "        runtime.around(turn),\n"
    "        runtime.sessions.open(turn.session_id, turn.actor) as session,\n"
    "    ):\n"
    "        if last := await session.begin(turn):\n"
    "            if turn.reply:  # there is none of a turn that waits without text\n"
    "                await turn.emit(turn.reply)\n"
    "            return last\n"
    "        try:\n"
    f"            async with {TIMEOUT} as limit:\n"
)
SNAPSHOT = 'agent.take_snapshot(preset="session").to_dict()'
COMMIT = f"session.commit(turn, {SNAPSHOT}, print)"
STAGED = "                agent = _stage(runtime, turn, session.data, shortening)\n"
AFTER_TIMEOUT = '            raise AgentError("turn_timeout") from None\n'
STOPS = '{"end_turn", "stop_sequence"}'

FAULTS = [
    Fault(
        "every turn is committed, however it ended",
        TURN,
        AFTER_TIMEOUT,
        f"{AFTER_TIMEOUT}        finally:\n            await {COMMIT}\n",
    ),
    Fault(
        "a cancelled turn is committed",
        TURN,
        AFTER_TIMEOUT,
        f"{AFTER_TIMEOUT}        except asyncio.CancelledError:\n"
        f"            await {COMMIT}\n            raise\n",
    ),
    Fault(
        "a turn is committed before it runs",
        TURN,
        STAGED,
        f"{STAGED}                await {COMMIT}\n",
    ),
    Fault("the commit is forgotten", TURN, "await session.commit(", "dict("),
    Fault(
        "one agent goes on from turn to turn",
        TURN,
        "    # Without the SDK's copy of each message.\n",
        "    if (known := vars(runtime).setdefault(turn.session_id, agent)) is not agent:\n"
        "        return known\n",
    ),
    Fault("a blank reply is a turn", TURN, "    if is_blank(", "    if False and is_blank("),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        'is_blank("".join(block.get("text", "") for block in result.message["content"]))',
        "is_blank(turn.reply)",
    ),
    Fault("a cut stream is a turn", TURN, "result is None or not is_whole", "result is None"),
    Fault(
        "a reply that is cut by its length is a turn",
        TURN,
        '        raise AgentError("reply_incomplete", detail="max_tokens") from None\n',
        "        return\n",
    ),
    Fault("a filtered reply is a turn", TURN, STOPS, '{"end_turn", "content_filtered"}'),
    Fault("steps are not limited", TURN, "Limits(turns=runtime.settings.max_steps)", "None"),
    Fault("a turn may take for ever", TURN, TIMEOUT, "time_limit(86_400)"),
    Fault(
        "the time that a turn waits for its session is counted",
        TURN,
        OPENED,
        "    arrived = asyncio.get_running_loop().time()\n"
        + OPENED.replace("time_limit(", "asyncio.timeout_at(arrived + "),
    ),
    Fault(
        "the system prompt is stored with the session",
        TURN,
        'exclude=["messages"]',
        'exclude=["messages"], include=["system_prompt"]',
    ),
    Fault(
        "a chunk is emitted twice",
        TURN,
        "await turn.emit(turn.texts[-1])\n",
        "await turn.emit(turn.texts[-1] * 2)\n",
    ),
    Fault(
        "the reply is the text of the last step only",
        TURN,
        "turn.texts.append(well_formed(text))",
        "turn.texts[:] = [well_formed(text)]",
    ),
    Fault(
        "a caller reads what the model's exception says",
        TURN,
        'raise AgentError("model_failed", detail=describe(error))',
        'raise AgentError("model_failed", str(error))',
    ),
]
