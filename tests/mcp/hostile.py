"""MCP servers over stdio that do what none should.

The first argument says which; each leaves a file named by its process in the folder that is the
second.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = {"tools": {"listChanged": True}}
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
SCHEMAS: dict[str, dict[str, object]] = {
    "odd": {
        **dict.fromkeys(("never", "half", "no_result", "empty", "wrong"), OBJECT),
        **dict.fromkeys(("huge", "get-sum/2", "word_count", "link", "", "?"), OBJECT),
        "broken": {"type": "object", "properties": {"text": {"type": "strnig"}}},
        "long": {"type": "object", "description": "x" * 20_000},
    },
    "many": {f"tool_{number}": OBJECT for number in range(500)},
    "grows": {"grow": OBJECT, "a-b": OBJECT},
    "noisy": dict.fromkeys(("flood", "bytes", "sound"), OBJECT),
    "list": {"sound": OBJECT, "flat": {"type": "string"}},
}


ERRORS = {"says": "the\n licence\x1b[31m has expired", "refuses": "no tools today"}


def send(id: object, **message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id, **message}), flush=True)


def text(value: str, **more: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def call(id: object, name: str) -> None:
    if name == "half":
        print('{"jsonrpc": "2.0", "id": ', end="", flush=True)
        os._exit(1)
    if name == "never":
        return
    if name == "flood":
        line = b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}\n'
        while True:
            os.write(1, line * 100)
    if name == "bytes":
        answer = json.dumps({"jsonrpc": "2.0", "id": id, "result": text("caf~")})
        os.write(1, b"\xff\xfe no message\n" + answer.encode().replace(b"~", b"\xe9") + b"\n")
        return
    if name == "grow":
        SCHEMAS["grows"] = {"grown": OBJECT, "a_b": OBJECT}
        print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
    results: dict[str, object] = {
        "no_result": {"content": "a text"},
        "empty": {"content": []},
        "wrong": text("it rains", isError=True),
        "huge": text("x" * 10_000_000),
        "link": {"content": [{"type": "resource_link", "name": "plan", "uri": "file:///plan.md"}]},
    }
    send(id, result=results.get(name, text(f"this is {name}")))


def main(kind: str, folder: Path) -> None:
    (folder / f"{os.getpid()}.pid").touch()
    print("it waits for a login", file=sys.stderr, flush=True)
    if kind == "ends":
        sys.exit("the licence has expired")
    if kind == "grows":  # as npx and uvx do; this one stays when its parent ends
        child = subprocess.Popen(["sleep", "60"])
        (folder / f"{child.pid}.pid").touch()
    if kind == "odd":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request.get("params", {})
        if kind in {"silent", "rubbish"}:
            print("hello" if kind == "rubbish" else "", flush=True)
        elif kind == "says" or (kind == "refuses" and method == "tools/list"):
            send(request["id"], error={"code": -32000, "message": ERRORS[kind]})
        elif method == "initialize":
            print("this line is no message\n[]", flush=True)
            version = params["protocolVersion"]
            info = {"name": kind, "version": "1"}
            result = {"protocolVersion": version, "capabilities": TOOLS, "serverInfo": info}
            send(request["id"], result=result)
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": it} for name, it in SCHEMAS[kind].items()]
            send(request["id"], result={"tools": tools})
        elif method == "tools/call":
            call(request["id"], params["name"])
    if kind == "odd":  # its input has ended, and it stays
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
