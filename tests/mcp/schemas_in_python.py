"""Repairs each vector of schemas.json with the modules of a render, and prints the outcome."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(file: str) -> None:
    schemas, rules = (
        import_module(f"my_agent.harness.{it}") for it in ("mcp_servers.schemas", "tool_schemas")
    )

    def repaired(vector: dict[str, Any]) -> dict[str, Any]:
        try:
            tool = schemas.RepairedTool(vector["description"], vector["schema"])
        except schemas.NotRepairableError as error:
            return {"refused": str(error)}
        problems = rules.problems_of("tool", tool.description, tool.schema)
        found = {"description": tool.description, "schema": tool.schema, "problems": problems}
        if arguments := vector.get("arguments"):
            found["restored"] = tool.restore(arguments)
        return found

    def refused(text: str) -> str:
        error = RuntimeError("HTTP")
        error.__cause__ = RuntimeError(text)
        return str(rules.refused_tool(error, ["one", "two", "hubspot-search"]))

    data = json.loads(Path(file).read_text())
    vectors = [repaired(vector) for vector in data["vectors"]]
    print(json.dumps({"vectors": vectors, "refused": [refused(it) for it in data["refusals"]]}))


if __name__ == "__main__":
    main(sys.argv[1])
