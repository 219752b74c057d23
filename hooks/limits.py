"""How long a render may be. A goal is lowered or kept; who raises one tells why."""

# The lines of a whole render in each language, by whether it has a session store and a memory.
LINES = {
    (False, False): {"python": 3030, "typescript": 3090},
    (True, False): {"python": 6130, "typescript": 6100},
    (False, True): {"python": 6645, "typescript": 6855},
    (True, True): {"python": 8175, "typescript": 8455},
}
# What other answers may add to them.
MORE_LINES = {
    "agentcore": {"python": 280, "typescript": 280},
    "container": {"python": 140, "typescript": 140},
    "tracing": {"python": 165, "typescript": 150},
    "mcp": {"python": 760, "typescript": 730},
    "ai-sdk-ui": {"python": 380, "typescript": 370},
    "ui": {"python": 1830, "typescript": 1830},
}
COLUMNS = 100
