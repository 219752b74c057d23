"""MCP servers: the file that declares them, their connections, and the tools they offer."""
