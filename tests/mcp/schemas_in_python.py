"""Repairs each vector of schemas.json with the modules of a render, and prints the outcome."""

import json
import sys
from pathlib import Path
from typing import Any


def main(file: str) -> None:
    from app.mcp_servers.schemas import NotRepairableError, Repaired
    from app.tool_schemas import problems_of, refused_tool

    def repaired(vector: dict[str, Any]) -> dict[str, Any]:
        try:
            tool = Repaired(vector["description"], vector["schema"])
        except NotRepairableError as error:
            return {"refused": str(error)}
        problems = problems_of("tool", tool.description, tool.schema)
        found = {"description": tool.description, "schema": tool.schema, "problems": problems}
        if arguments := vector.get("arguments"):
            found["restored"] = tool.restore(arguments)
        return found

    def refused(text: str) -> str:
        error = RuntimeError("HTTP")
        error.__cause__ = RuntimeError(text)
        return str(refused_tool(error, ["one", "two", "hubspot-search"]))

    data = json.loads(Path(file).read_text())
    vectors = [repaired(vector) for vector in data["vectors"]]
    print(json.dumps({"vectors": vectors, "refused": [refused(it) for it in data["refusals"]]}))


if __name__ == "__main__":
    main(sys.argv[1])
