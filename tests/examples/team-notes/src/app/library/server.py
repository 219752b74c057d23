"""An MCP server over stdio with two tools: search the notes, and read one.

`.mcp.json` starts it for this agent; every other agent that speaks MCP can use it, too.
"""

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from .search import read_notes, search

server = MCPServer("library")


@server.tool()
def search_notes(query: str) -> str:
    """Search the notes of the team. Returns names and titles, the best first."""
    notes = read_notes()
    found = search(notes, query)
    if not found:
        return "No note fits. There are: " + ", ".join(notes)
    titles = {name: notes[name].partition("\n")[0].removeprefix("# ") for name in found}
    return "\n".join(f"{name}: {title}" for name, title in titles.items())


@server.tool()
def read_note(name: str) -> str:
    """Read a whole note by the name that search_notes returns, such as heat-pumps."""
    notes = read_notes()
    # Only a name of the list is read, so no name can be a path to another file.
    if name not in notes:
        raise ToolError(f"There is no note {name}. There are: " + ", ".join(notes))
    return notes[name]


if __name__ == "__main__":
    server.run()
