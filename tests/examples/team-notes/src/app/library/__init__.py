"""The library: the notes of the team, and the MCP server by which agents search and read them."""
