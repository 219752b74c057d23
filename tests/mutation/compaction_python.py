"""Faults in how Python renders summarize what a session no longer holds."""

from tests.mutation.fault import Fault

CAPABILITY = "src/my_agent/harness/compaction/capability.py"
SUMMARY = "src/my_agent/harness/compaction/summary.py"

FAULTS = [
    Fault(
        "turns begin where they did before the summary",
        "src/my_agent/harness/sessions/sessions.py",
        "_move(self.turns, 0, len(summary))",
        "_move(self.turns, 0, 0)",
    ),
    Fault(
        "a summary is of one turn more than it says",
        "src/my_agent/harness/sessions/sessions.py",
        "last = self.number - len(self.turns)",
        "last = self.number - 1 - len(self.turns)",
    ),
    Fault(
        "an earlier summary is summarized as what a user said",
        CAPABILITY,
        "self._summarize(turn, dropped[:at], dropped[at:])",
        "self._summarize(turn, [], dropped)",
    ),
    Fault(
        "the earlier summary is forgotten",
        CAPABILITY,
        "self._summarize(turn, dropped[:at], dropped[at:])",
        "self._summarize(turn, [], dropped[at:])",
    ),
    Fault(
        "a turn that fails pays again", CAPABILITY, "if text is None:", "if text is None or digest:"
    ),
    Fault(
        "a summary of other messages is taken",
        "src/my_agent/harness/compaction/capability.py",
        "serialize([turn.session_id, last, dropped])",
        "serialize([turn.session_id])",
    ),
    Fault("an unfinished summary is taken", CAPABILITY, "if not answer.is_whole:", "if False:"),
    Fault("a blank summary is taken", CAPABILITY, "if is_blank(text):", "if False:"),
    Fault(
        "a summary may take as long as it likes",
        CAPABILITY,
        "time_limit(seconds)",
        "time_limit(86_400)",
    ),
    Fault(
        "the log quotes the error of a model",
        CAPABILITY,
        "{describe(error)}",
        "{error}",
    ),
    Fault("a summary can end its mark", SUMMARY, "html.escape(text, False)", "text"),
    Fault("an earlier summary is escaped again", SUMMARY, "html.unescape(match[1])", "match[1]"),
    Fault(
        "the offline summary quotes the agent",
        SUMMARY,
        'if speaker == "user" and isinstance',
        "if isinstance",
    ),
]
