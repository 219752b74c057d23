"""Tries each regular expression of a render's collections/ and memory/ with hostile texts.

The texts are pairs: a short one and a long one. A pattern is slow if it takes more CPU time for
the long text than `ratio` times the time for the short text plus `floor` seconds. Prints the
number of patterns, and the slow ones: {"tried": n, "slow": [...]}.
"""

import ast
import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

request = json.load(sys.stdin)
SOURCES = sorted(
    path for name in request["folders"] for path in Path("src/my_agent/harness", name).glob("*.py")
)
TEXT = "\n".join(path.read_text("utf-8") for path in SOURCES)
HANG_SECONDS = 30
METHODS = ("fullmatch", "match", "search", "sub", "split", "findall")


def late(_: int, __: FrameType | None) -> None:
    """End a pattern that hangs."""
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


def spent(pattern: str, use: str, text: str) -> float:
    """Return the CPU time of a pattern, in seconds."""
    compiled = re.compile(pattern)
    start = time.process_time()
    if use == "sub":
        compiled.sub("", text)
    else:
        getattr(compiled, use)(text)
    return time.process_time() - start


def is_slow(pattern: str, use: str, short: str, long: str) -> bool:
    """Whether a pattern takes much more time for the long text than for the short text."""
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
    try:
        limit = request["ratio"] * spent(pattern, use, short) + request["floor"]
        return bool(spent(pattern, use, long) > limit)
    except TimeoutError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


signal.signal(signal.SIGVTALRM, late)
count, slow = 0, []
for where, pattern, use in patterns():
    count += 1
    for short, long in request["texts"]:
        if is_slow(pattern, use, short, long):
            slow.append(f"{where} {use} {pattern!r}: {long[:20]!r}…")
            break
json.dump({"tried": count, "slow": slow}, sys.stdout)
