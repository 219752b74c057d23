"""Faults in what the Strands render in TypeScript has of its own: how a turn runs."""

from tests.mutation.fault import Fault

TURN = "src/harness/turn.ts"
MESSAGES = "src/harness/messages.ts"
STOPS = "stopReason !== 'endTurn' && stopReason !== 'stopSequence'"
RUN = "      turn.output = ending.output\n    })"
COMMIT = (
    "await stage.commit({ scope: 'agent', schema_version: '1.0', created_at: '', "
    "data: agent.takeSnapshot({ preset: 'session' }).data as never }, () => {})"
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
        "an empty reply is a turn",
        TURN,
        "  if (isBlank(texts.join(''))) throw new AgentError('empty_reply')\n",
        "",
    ),
    Fault(
        "text before a tool call counts as the reply",
        TURN,
        "isBlank(texts.join(''",
        "isBlank(turn.reply.concat(''",
    ),
    Fault(
        "a reply that is cut by its length is a turn",
        TURN,
        "if (error instanceof MaxTokensError) throw new AgentError("
        "'reply_incomplete', '', 'maxTokens')",
        "if (error instanceof MaxTokensError) return",
    ),
    Fault(
        "a filtered reply is a turn", TURN, STOPS, f"{STOPS} && stopReason !== 'contentFiltered'"
    ),
    Fault(
        "steps are not limited",
        TURN,
        "{ turns: Math.max(1, runtime.settings.maxSteps - earlier) }",
        "{}",
    ),
    Fault(
        "the system prompt is stored with the session", TURN, ", exclude: ['systemPrompt'] }", " }"
    ),
    Fault(
        "a chunk is emitted twice",
        TURN,
        "await turn.say(event.delta.text.toWellFormed())\n",
        "await turn.say(event.delta.text.toWellFormed())\n"
        "        await turn.emit(event.delta.text)\n",
    ),
    Fault(
        "the reply is the text of the last step only",
        CONTRACT,
        "this.reply += text",
        "this.reply = text",
    ),
    Fault(
        "a caller reads what the model's exception says",
        TURN,
        "new AgentError('model_failed', '', ",
        "new AgentError('model_failed', String(error), ",
    ),
    Fault(
        "a turn that the next request cannot use is committed",
        TURN,
        "  checkMessages(messagesOf(",
        "  if (!turn) checkMessages(messagesOf(",
    ),
    Fault(
        "a call with broken arguments runs without arguments",
        MESSAGES,
        "if (!isBlank(input)) refused.push([start.toolUseId, input])",
        "",
    ),
    Fault("a list is taken for arguments", MESSAGES, " && !Array.isArray(value)", ""),
    Fault("two calls have one id", MESSAGES, " && !ids.has(id)", ""),
    Fault(
        "an id may be as long as it likes",
        "src/harness/tool_schemas.ts",
        "_-]{1,40}$",
        "_-]{1,64}$",
    ),
    Fault(
        "a repaired name runs the tool of that name",
        MESSAGES,
        "misnamed.push(start!.toolUseId)",
        "misnamed.push('')",
    ),
    Fault(
        "a model gets the reasoning of another one",
        MESSAGES,
        "return isOwn ? [block] : []",
        "return [block]",
    ),
    Fault(
        "a model that stops for a call without one is asked again",
        MESSAGES,
        "const reason = calls.length > 0 ? 'toolUse' : 'endTurn'",
        "const reason = 'toolUse'",
    ),
]
