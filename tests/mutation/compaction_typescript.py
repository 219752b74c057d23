"""Faults in how TypeScript renders summarize what a session no longer holds."""

from tests.mutation.fault import Fault

SESSIONS = "src/harness/sessions/sessions.ts"
CAPABILITY = "src/harness/compaction/capability.ts"
SUMMARY = "src/harness/compaction/summary.ts"

FAULTS = [
    Fault(
        "turns begin where they did before the summary",
        SESSIONS,
        "start.at - end + length",
        "start.at - end",
    ),
    Fault(
        "a summary is of one turn more than it says",
        SESSIONS,
        "turn.number - 1 - later.length",
        "turn.number - 2 - later.length",
    ),
    Fault(
        "an earlier summary is summarized as what a user said",
        CAPABILITY,
        "this.#summarize(turn, earlier, dropped.slice(at))",
        "this.#summarize(turn, earlier.slice(at), dropped)",
    ),
    Fault(
        "the earlier summary is forgotten",
        CAPABILITY,
        "this.#summarize(turn, earlier, dropped.slice(at))",
        "this.#summarize(turn, earlier.slice(at), dropped.slice(at))",
    ),
    Fault(
        "a turn that fails pays again",
        CAPABILITY,
        "if (summary === undefined) {",
        "if (!summary || digest) {",
    ),
    Fault(
        "a summary of other messages is taken",
        CAPABILITY,
        "serialize([sessionId, turns, dropped])",
        "serialize([sessionId])",
    ),
    Fault("an unfinished summary is taken", CAPABILITY, "if (!isWhole) throw", "if (!text) throw"),
    Fault("a blank summary is taken", CAPABILITY, "if (isBlank(text)) throw", "if (false) throw"),
    Fault(
        "a summary may take as long as it likes",
        CAPABILITY,
        "      seconds,\n      turn.signal,",
        "      86_400,\n      turn.signal,",
    ),
    Fault(
        "the log quotes the error of a model",
        CAPABILITY,
        "${describe(error)}",
        "${error}",
    ),
    Fault(
        "a summary can end its mark",
        SUMMARY,
        ".replaceAll('<', '&lt;')",
        "",
    ),
    Fault("an earlier summary is escaped again", SUMMARY, ".replaceAll('&lt;', '<')", ""),
    Fault(
        "the offline summary quotes the agent",
        SUMMARY,
        "speaker === 'user' && typeof chunk === 'string' ? [chunk]",
        "typeof chunk === 'string' ? [chunk]",
    ),
]
