"""Tries each regular expression of a render's collections/ and memory/ with hostile texts.

Prints how many there are, and those that took longer than is linear: {"tried": n, "slow": [...]}.
"""

import ast
import importlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

request = json.load(sys.stdin)
SOURCES = sorted(
    path for name in request["folders"] for path in Path("src/my_agent/harness", name).glob("*.py")
)
TEXT = "\n".join(path.read_text("utf-8") for path in SOURCES)
METHODS = ("fullmatch", "match", "search", "sub", "split", "findall")


def late(_: int, __: FrameType | None) -> None:
    """End a pattern that takes too long."""
    raise TimeoutError


def patterns() -> Iterator[tuple[str, str, str]]:
    """Where each stands, what it is, and how it is used."""
    for path in SOURCES:
        module = importlib.import_module(".".join(path.relative_to("src").with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) and node.args else ""
            method = name.removeprefix("re.")
            if name not in ("matches", "re.compile", *(f"re.{one}" for one in METHODS)):
                continue
            try:
                pattern = eval(ast.unparse(node.args[0]), vars(module))  # type: ignore[attr-defined]
            except NameError:  # it is made of parts that only a call knows
                continue
            where = f"{path}:{node.lineno}"  # type: ignore[attr-defined]
            for use in uses(path, node, method):
                yield where, pattern, use


def uses(path: Path, node: ast.AST, method: str) -> set[str]:
    """The methods by which a pattern is used."""
    if method == "matches":
        return {"fullmatch"}
    if method != "compile":
        return {method}
    line = path.read_text("utf-8").splitlines()[node.lineno - 1]  # type: ignore[attr-defined]
    name = line.partition(" = ")[0].strip()
    return {one for one in METHODS if f"{name}.{one}" in TEXT} or {"search"}


def tried(pattern: str, use: str, text: str) -> None:
    compiled = re.compile(pattern)
    if use == "sub":
        compiled.sub("", text)
    else:
        getattr(compiled, use)(text)


signal.signal(signal.SIGVTALRM, late)
count, slow = 0, []
for where, pattern, use in patterns():
    count += 1
    for text in request["texts"]:
        signal.setitimer(signal.ITIMER_VIRTUAL, request["seconds"])
        try:
            tried(pattern, use, text)
        except TimeoutError:
            slow.append(f"{where} {use} {pattern!r}: {text[:20]!r}…")
            break
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
json.dump({"tried": count, "slow": slow}, sys.stdout)
