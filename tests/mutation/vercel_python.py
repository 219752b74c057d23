"""Faults in what the AI SDK's render in Python has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN = "src/my_agent/harness/turn.py"
MESSAGES = "src/my_agent/harness/messages.py"
UNFINISHED = '    if reason not in {"stop", "tool_call"}:\n'

FAULTS = [
    Fault(
        "a failed turn is committed",
        "src/my_agent/harness/runtime.py",
        '            raise AgentError("turn_timeout") from None\n',
        (
            '            raise AgentError("turn_timeout") from None\n'
            "        except AgentError:\n"
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
        "only the reply of a turn is committed",
        TURN,
        "*map(_dump, new_messages)]",
        "*map(_dump, [new_messages[0], new_messages[-1]])]",
    ),
    Fault(
        "a blank reply is a turn",
        MESSAGES,
        "            if not is_blank(part.text):\n",
        "            if part.text:\n",
    ),
    Fault(
        "a call with broken arguments runs without them",
        MESSAGES,
        '        _set_metadata(call, "received", well_formed(raw)[:MAX_QUOTED_CHARS])\n',
        "",
    ),
    Fault(
        "a name is repaired to that of a tool",
        MESSAGES,
        '        _set_metadata(call, "name", well_formed(call.tool_name)[:MAX_QUOTED_CHARS]'
        ' or "(no name)")\n',
        "",
    ),
    Fault(
        "a model is shown the reasoning of others",
        MESSAGES,
        'if message.role != "assistant" or _metadata(message).get("model") == model:',
        "if True:",
    ),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        "if not reply and",
        "if is_blank(turn.reply) and",
    ),
    Fault(
        "a filtered reply is a turn",
        TURN,
        UNFINISHED,
        '    if reason not in {"stop", "tool_call", "content_filter"}:\n',
    ),
    Fault("steps are not limited", TURN, "range(earlier, self.settings.max_steps)", "range(10**9)"),
    Fault(
        "errors stay in their groups",
        TURN,
        "        while isinstance(error, ExceptionGroup):\n"
        "            error = error.exceptions[0]\n",
        "",
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
        'raise AgentError("model_failed", detail=describe(error)) from error',
        'raise AgentError("model_failed", str(error)) from error',
    ),
]
