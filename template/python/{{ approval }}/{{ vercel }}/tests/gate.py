"""The tool word_count waits for a person."""

GATE = ("app.agent.word_count.tool.require_approval", True)
