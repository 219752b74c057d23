"""How long a render may be. A goal is lowered or kept; who raises one tells why."""

# The lines of a whole render in each language, by whether it has a session store and a memory.
# Raised by what every render has: what first owners missed in README, turns that replace others,
# forks, tools that know their turn, the caches of providers, and turns that cost the SDKs less
# (messages that are quick to copy, no JSON for spans that nobody records, and answers that are read
# without web streams: a module, for which a turn takes 0.65 of the time); what Bedrock is rendered
# with: its guardrails; what is bytes in messages of strands-python: images (by kind to a page), and
# encrypted reasoning; `chat` and `--reload` that can be left at any time; that capabilities may add
# options to `check`; and `chat` in a terminal: Markdown, whole words, a history, and a log that
# waits (own code: `rich` takes 50 ms to load, `marked-terminal` 150). With a store: copies of
# sessions to another one, versions of collections that are compared, the state section, names of
# secrets by project. With a memory: what its owner decides about (injection, recording, metadata,
# stores by name), namespaces of strategies, memory outside turns, and kinds of memories; a
# knowledge base comes with the extraction of facts. With both: that `forget` reaches what has
# expired and names what it cannot find, and that nothing is lost at the end of a process.
LINES = {
    (False, False): {"python": 3785, "typescript": 4030},
    (True, False): {"python": 7470, "typescript": 7705},
    (False, True): {"python": 8700, "typescript": 8975},
    (True, True): {"python": 10545, "typescript": 10905},
}
# What other answers may add to them.
MORE_LINES = {
    "memory: agentcore-and-knowledge-base": {"python": 580, "typescript": 665},
    # Raised by the way without Docker.
    "agentcore": {"python": 350, "typescript": 350},
    "kubernetes": {"python": 390, "typescript": 390},
    "container": {"python": 140, "typescript": 140},
    # Raised by metrics, by the names of the conventions in spans, and by callers who leave.
    "tracing": {"python": 375, "typescript": 390},
    "auth": {"python": 560, "typescript": 560},
    "approval": {"python": 370, "typescript": 370},
    "compaction": {"python": 460, "typescript": 490},
    "fallback": {"python": 290, "typescript": 300},
    "evals": {"python": 1290, "typescript": 1400},
    "mcp": {"python": 760, "typescript": 740},
    "ai-sdk-ui": {"python": 540, "typescript": 550},
    "ui": {"python": 2230, "typescript": 2260},
}
COLUMNS = 100
