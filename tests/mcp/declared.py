"""An MCP server over stdio whose tools stand in a JSON file, exactly as it sends them.

A call answers with the name and the arguments that the server received. The second argument delays
the start.
"""

import json
import sys
import time
from pathlib import Path


def send(id: object, result: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


def main(file: str, delay: str = "0") -> None:
    tools = json.loads(Path(file).read_text())
    time.sleep(float(delay))
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            version, info = params["protocolVersion"], {"name": "declared", "version": "1"}
            capabilities = {"capabilities": {"tools": {}}, "serverInfo": info}
            result = {"protocolVersion": version, **capabilities}
            send(request["id"], result)
        elif method == "tools/list":
            send(request["id"], {"tools": tools, "nextCursor": None})
        elif method == "tools/call":
            received = [params["name"], params.get("arguments")]
            text = json.dumps(received, ensure_ascii=False, separators=(",", ":"))
            send(request["id"], {"content": [{"type": "text", "text": text}]})


if __name__ == "__main__":
    main(*sys.argv[1:])
