"""Faults in what the AI SDK's render in TypeScript has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN, STREAMING, MESSAGES = (
    "src/harness/turn.ts",
    "src/harness/models/streaming.ts",
    "src/harness/messages.ts",
)
RUN = "    return stream(runtime, stage, staged, prompts)\n  })"
COMMIT = (
    "await stage.commit({ scope: 'agent', schema_version: '1.0', created_at: '', "
    "data: { messages: staged } }, () => {})"
)
CONTRACT = "src/harness/contract.ts"
RUNTIME = "src/harness/runtime.ts"

FAULTS = [
    Fault(
        "a turn that fails is committed",
        TURN,
        RUN,
        f"{RUN}.catch(async (error) => {{ {COMMIT}; throw error }})",
    ),
    Fault(
        "the commit is forgotten",
        RUNTIME,
        "stage.commit(snapshot, () => this.committed(turn, newMessages))",
        "turn.result('committed', [])",
    ),
    Fault(
        "only the reply of a turn is committed",
        TURN,
        "...staged.slice(at), ...responses]",
        "...staged.slice(at), ...responses.slice(-1)]",
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
        "isBlank(turn.reply)) throw",
    ),
    Fault(
        "a cut stream is a turn",
        STREAMING,
        "throw new AgentError('model_failed', '', 'the stream was cut')",
        "return { finishReason: { unified: 'stop', raw: '' }, "
        "usage: { inputTokens: {}, outputTokens: {} } } as never",
    ),
    Fault(
        "a turn that runs out of steps is a turn",
        TURN,
        "if (!isOver || toolCalls.some((call) => !call.providerExecuted))",
        "if (!isOver)",
    ),
    Fault("steps are not limited", TURN, "isStepCount(stepsLeft)", "isStepCount(1000)"),
    Fault(
        "a chunk is emitted twice",
        TURN,
        "await turn.say(part.delta.toWellFormed())\n",
        "await turn.say(part.delta.toWellFormed())\n      await turn.emit(part.delta)\n",
    ),
    Fault(
        "the reply is the text of the last step only",
        CONTRACT,
        "this.reply += text",
        "this.reply = text",
    ),
    Fault(
        "a caller reads what the model's exception says",
        STREAMING,
        "new AgentError('model_failed', '', describe(error)",
        "new AgentError('model_failed', String(error), describe(error)",
    ),
    Fault("a refused call runs", MESSAGES, "input: `!${part.input}`", "input: '{}'"),
    Fault(
        "a call whose name is repaired runs",
        MESSAGES,
        "    if (isNamed) return undefined\n",
        "    if (value) return undefined\n",
    ),
    Fault("two calls have one id", MESSAGES, " && !this.#ids.has(id)", ""),
    Fault(
        "a model gets the reasoning of another one",
        MESSAGES,
        "if (producer?.model === model)",
        "if (producer)",
    ),
    Fault(
        "a turn is committed without a check",
        MESSAGES,
        "  if (fault) throw new AgentError('model_failed', '', fault)\n",
        "",
    ),
]
