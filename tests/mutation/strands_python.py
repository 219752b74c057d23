"""Faults in what the Strands render in Python has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN = "src/my_agent/harness/turn.py"
STOPS = '{"end_turn", "stop_sequence"}'

FAULTS = [
    Fault(
        "every turn is committed, however it ended",
        "src/my_agent/harness/runtime.py",
        '            raise AgentError("turn_timeout") from None\n',
        (
            '            raise AgentError("turn_timeout") from None\n'
            "        finally:\n"
            '            await stage.commit({**(session.snapshot or {}), "data": '
            "stage.data}, print)\n"
        ),
    ),
    Fault(
        "a cancelled turn is committed",
        "src/my_agent/harness/runtime.py",
        '            raise AgentError("turn_timeout") from None\n',
        (
            '            raise AgentError("turn_timeout") from None\n'
            "        except asyncio.CancelledError:\n"
            '            await stage.commit({**(session.snapshot or {}), "data": '
            "stage.data}, print)\n"
            "            raise\n"
        ),
    ),
    Fault(
        "a turn is committed before it runs",
        "src/my_agent/harness/runtime.py",
        "                options = runtime.prepare(turn)\n",
        (
            "                options = runtime.prepare(turn)\n"
            '                await stage.commit({**(session.snapshot or {}), "data": '
            "stage.data}, print)\n"
        ),
    ),
    Fault(
        "the commit is forgotten",
        "src/my_agent/harness/runtime.py",
        ("return await stage.commit(snapshot, partial(runtime.committed, turn, new_messages))"),
        'return turn.end("committed")',
    ),
    Fault(
        "one agent goes on from turn to turn",
        TURN,
        "    # Avoid the SDK's copy of each message.\n",
        "    if (known := vars(runtime).setdefault(turn.session_id, agent)) is not agent:\n"
        "        return known\n",
    ),
    Fault(
        "a blank reply is a turn",
        TURN,
        "    elif is_blank(text)",
        "    elif False and is_blank(text)",
    ),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        "    elif is_blank(text)",
        "    elif is_blank(turn.reply)",
    ),
    Fault(
        "a cut stream is a turn",
        TURN,
        "not (is_whole or stage.has_final_result or is_over)",
        "False",
    ),
    Fault(
        "a reply that is cut by its length is a turn",
        TURN,
        '        raise AgentError("reply_incomplete", detail="max_tokens") from None\n',
        "        return\n",
    ),
    Fault("a filtered reply is a turn", TURN, STOPS, '{"end_turn", "content_filtered"}'),
    Fault(
        "steps are not limited",
        "src/my_agent/harness/turn.py",
        "Limits(turns=max(1, settings.max_steps - earlier))",
        "None",
    ),
    Fault(
        "a turn may take for ever",
        "src/my_agent/harness/runtime.py",
        "time_limit(runtime.settings.turn_timeout_seconds)",
        "time_limit(86_400)",
    ),
    Fault(
        "the time that a turn waits for its session is counted",
        "src/my_agent/harness/runtime.py",
        (
            "    async with runtime.sessions.open(turn.session_id, turn.actor) as session:\n"
            "        stage = await session.begin(turn)\n"
            "        if isinstance(stage, TurnResult):\n"
            "            if stage.reply:  # a waiting turn may have no text\n"
            "                await turn.emit(stage.reply)\n"
            "            return stage\n"
            "        try:\n"
            "            async with time_limit(runtime.settings.turn_timeout_seconds) as "
            "limit:\n"
        ),
        (
            "    arrived = asyncio.get_running_loop().time()\n"
            "    async with runtime.sessions.open(turn.session_id, turn.actor) as session:\n"
            "        stage = await session.begin(turn)\n"
            "        if isinstance(stage, TurnResult):\n"
            "            if stage.reply:  # a waiting turn may have no text\n"
            "                await turn.emit(stage.reply)\n"
            "            return stage\n"
            "        try:\n"
            "            async with asyncio.timeout_at(arrived + "
            "runtime.settings.turn_timeout_seconds) as limit:\n"
        ),
    ),
    Fault(
        "the system prompt is stored with the session",
        TURN,
        'exclude=["messages"]',
        'exclude=["messages"], include=["system_prompt"]',
    ),
    Fault(
        "a chunk is emitted twice",
        "src/my_agent/harness/contract.py",
        "await self.emit(self.texts[-1])\n",
        "await self.emit(self.texts[-1] * 2)\n",
    ),
    Fault(
        "the reply is the text of the last step only",
        "src/my_agent/harness/contract.py",
        "self.texts.append(well_formed(text))",
        "self.texts[:] = [well_formed(text)]",
    ),
    Fault(
        "a caller reads what the model's exception says",
        TURN,
        'raise AgentError("model_failed", detail=describe(error))',
        'raise AgentError("model_failed", str(error))',
    ),
]
