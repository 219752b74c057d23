"""Faults in what the AI SDK's render in TypeScript has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN = "src/turn.ts"
RUN = "stream(runtime, turn, [...messages, prompt], stop),\n      )"
COMMIT = (
    "await session.commit(turn, { scope: 'agent', schema_version: '1.0', created_at: '', "
    "data: { messages: [...messages, prompt] } }, [0], '', () => {})"
)

FAULTS = [
    Fault(
        "a turn that fails is committed",
        TURN,
        RUN,
        f"{RUN}.catch(async (error) => {{ {COMMIT}; throw error }})",
    ),
    Fault(
        "the commit is forgotten",
        TURN,
        "session.commit(turn, snapshot, startsOf(data.messages), reply, saved)",
        "{ actor: turn.actor, key: turn.key, turn: turn.number, reply }",
    ),
    Fault(
        "only the reply of a turn is committed",
        TURN,
        "const added = [prompt, ...responses]",
        "const added = [prompt, ...responses.slice(-1)]",
    ),
    Fault(
        "an empty reply is a turn",
        TURN,
        "    if (isBlank(text)) throw new AgentError('empty_reply')\n",
        "",
    ),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        "isBlank(text)) throw",
        "isBlank(chunks.join(''))) throw",
    ),
    Fault(
        "a cut stream is a turn",
        TURN,
        "    if (!isOver || ['interrupted', 'error'].includes(finishReason)) {",
        "    if (false) {",
    ),
    Fault(
        "a turn that runs out of steps is a turn",
        TURN,
        "if (finishReason !== 'stop' || toolCalls.length > 0)",
        "if (!['stop', 'tool-calls'].includes(finishReason))",
    ),
    Fault(
        "steps are not limited", TURN, "isStepCount(runtime.settings.maxSteps)", "isStepCount(1000)"
    ),
    Fault(
        "a chunk is emitted twice",
        TURN,
        "await turn.emit(chunk)\n",
        "await turn.emit(chunk)\n        await turn.emit(chunk)\n",
    ),
    Fault(
        "the reply is the text of the last step only",
        TURN,
        "return [chunks.join(''),",
        "return [text,",
    ),
    Fault(
        "the history is cut in front of a reply",
        TURN,
        "(message.role === 'user' ?",
        "(message.role !== 'tool' ?",
    ),
    Fault("a long turn is forgotten", TURN, "?? starts.at(-1))", "?? messages.length)"),
    Fault(
        "a caller reads what the model's exception says",
        TURN,
        "new AgentError('model_failed', '', describe(cause)",
        "new AgentError('model_failed', String(cause), describe(cause)",
    ),
]
