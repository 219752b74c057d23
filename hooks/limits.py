"""How long a render may be. A goal is lowered or kept; who raises one tells why."""

# The lines of a whole render in each language, by whether it has a session store and a memory.
# Raised by what every render has: turns that replace others, forks, tools that know their turn, and
# the caches of providers; and what Bedrock is rendered with: its guardrails. With a memory: what
# its owner decides about (injection, metadata, stores by name), and the namespaces of strategies.
LINES = {
    (False, False): {"python": 3320, "typescript": 3385},
    (True, False): {"python": 6405, "typescript": 6415},
    (False, True): {"python": 7335, "typescript": 7580},
    (True, True): {"python": 8895, "typescript": 9200},
}
# What other answers may add to them.
MORE_LINES = {
    "agentcore": {"python": 280, "typescript": 280},
    "container": {"python": 140, "typescript": 140},
    "tracing": {"python": 165, "typescript": 150},
    "approval": {"python": 370, "typescript": 370},
    "compaction": {"python": 460, "typescript": 490},
    "fallback": {"python": 290, "typescript": 300},
    "mcp": {"python": 760, "typescript": 730},
    "ai-sdk-ui": {"python": 540, "typescript": 550},
    "ui": {"python": 2230, "typescript": 2260},
}
COLUMNS = 100
