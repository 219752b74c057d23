"""The name and the description of the tool that searches memories. Make this file your own."""

# The name of the tool that searches, which no other tool should have; None: there is no such tool.
SEARCH_TOOL: str | None = "search_memory"

# Its description, which the names and descriptions of the stores follow; None: the usual one.
SEARCH_DESCRIPTION: str | None = None
