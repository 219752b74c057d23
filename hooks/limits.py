"""How long a render may be. A goal is lowered or kept; who raises one tells why."""

# The lines of a whole render in each language, by whether it has a session store and a memory.
# Raised by where sessions are cut (compaction puts a summary there), and where that one is shown.
# Raised by turns that replace others, forks, and tools that know their turn: every render has them.
LINES = {
    (False, False): {"python": 3262, "typescript": 3364},
    (True, False): {"python": 6395, "typescript": 6398},
    (False, True): {"python": 6877, "typescript": 7134},
    (True, True): {"python": 8439, "typescript": 8753},
}
# What other answers may add to them.
MORE_LINES = {
    "agentcore": {"python": 280, "typescript": 280},
    "container": {"python": 140, "typescript": 140},
    "tracing": {"python": 165, "typescript": 150},
    "approval": {"python": 370, "typescript": 370},
    "compaction": {"python": 460, "typescript": 490},
    "mcp": {"python": 760, "typescript": 730},
    "ai-sdk-ui": {"python": 540, "typescript": 550},
    "ui": {"python": 2230, "typescript": 2260},
}
COLUMNS = 100
