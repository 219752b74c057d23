"""Weigh the sources of renders: the tokens of each room, which is a folder below `src`.

Comments, docstrings and blanks do not count, and a string is one token. So joining statements on a
line saves nothing. hooks/weights.json has the weights of the last release.
"""

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from hooks.rendering import files_of, render, without_git
from hooks.template import Finding
from hooks.variants import EXTRAS, PROJECT_NAME, STORES, TARGETS
from hooks.workers import started

FILE = Path("hooks") / "weights.json"
CHANGELOG = "CHANGELOG.md"
SOURCES = "src"
# A Python render has these modules in a package, TypeScript has them directly in `src`.
PACKAGES = ("app", PROJECT_NAME.replace("-", "_"))
GROWTH = 1.05

WORD = r"[^\W\d][\w$]*|\d[\w.]*|[^\s\w]"
PYTHON = re.compile(
    r"(?P<skipped>#[^\n]*|(?m:^\s*)(?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''))"
    r"|[rbfuRBFU]{0,2}(?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|" + WORD
)
# A slash after these characters starts a regular expression, not a division. A quote inside does
# not start a string.
REGEX = (
    r"(?:(?<=[(,=:\[!&|?{};\n])|(?<=return))\s*"
    r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*"
)
SCRIPT = re.compile(
    rf"{REGEX}|(?P<skipped>//[^\n]*|/\*(?:.|\n)*?\*/)"
    r"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`|" + WORD
)
PATTERNS = {".py": PYTHON, ".ts": SCRIPT, ".js": SCRIPT}

Files = dict[PurePosixPath, int]  # the tokens of a source
Weights = dict[str, dict[str, int]]  # the tokens of a room, by room and target


def tokens(path: Path) -> int:
    """Return the number of tokens of a source file."""
    text = path.read_text("utf-8")
    matches = PATTERNS[path.suffix].finditer(text)
    return sum(match["skipped"] is None for match in matches)


def room_of(path: PurePosixPath) -> str:
    """Return the room of a source: the name of its folder."""
    folder = path.parent.name
    return SOURCES if folder in PACKAGES else folder


def weigh_files(project: Path) -> Files:
    """Return the tokens of each source of a render, without libraries."""
    paths = (PurePosixPath(path.as_posix()) for path in files_of(project))
    return {
        path: tokens(project / path)
        for path in paths
        if path.parts[0] == SOURCES
        and path.suffix in PATTERNS
        and not path.name.endswith(".min.js")
    }


def renders_of(target: str) -> Iterator[dict[str, Any]]:
    """Yield the answers of a plain render, and of renders with each capability of the target."""
    plain = {"project_name": PROJECT_NAME, "target": target}
    yield plain
    for store in STORES:
        yield {
            **plain,
            "session_store": store,
            "long_term_memory": "agentcore-and-knowledge-base",
            "deploy": "kubernetes" if store == STORES[0] else "agentcore",
            "extras": [*EXTRAS],
        }


def weigh_render(template: Path, answers: dict[str, Any]) -> Files:
    """Render a template and weigh its sources. Raises RenderError."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / PROJECT_NAME
        render(template, answers, project)
        return weigh_files(project)


@contextmanager
def weighing(root: Path) -> Iterator[Callable[[], Weights]]:
    """Render the template in `root`, and yield a function that waits for the weights.

    It returns the tokens of each room, by target, or raises RenderError.
    """
    rows = [(target, answers) for target in TARGETS for answers in renders_of(target)]
    answers = [answers for _, answers in rows]
    with without_git(root) as template, started(partial(weigh_render, template), answers) as found:

        def weights() -> Weights:
            renders: dict[str, list[Files]] = defaultdict(list)
            for (target, _), files in zip(rows, found, strict=True):
                renders[target].append(files)
            rooms: Weights = defaultdict(dict)
            for target, (plain, *others) in renders.items():
                for room, weight in weigh_rooms(plain, others).items():
                    rooms[room][target] = weight
            return {room: rooms[room] for room in sorted(rooms)}

        yield weights


def weigh(root: Path) -> Weights:
    """Return the tokens of each room of the template in `root`, by target. Raises RenderError."""
    with weighing(root) as weights:
        return weights()


def weigh_rooms(plain: Files, others: list[Files]) -> Counter[str]:
    """Return the tokens of each room of a target.

    A room of the plain render has its weight there. Answers add other rooms: a folder, or a module
    in a folder of the plain render. Of several versions of a file, the heaviest counts.
    """
    rooms = Counter[str]()
    for path, weight in plain.items():
        rooms[room_of(path)] += weight
    folders = {path.parent for path in plain}
    added: Files = {}
    for files in others:
        for path in files.keys() - plain.keys():
            added[path] = max(files[path], added.get(path, 0))
    for path, weight in added.items():
        room = path.stem if path.parent in folders else room_of(path)
        rooms[room] += weight
    return rooms


def read_last(root: Path) -> tuple[str, Weights]:
    """Return the last release and its weights; both empty without a file."""
    path = root / FILE
    if not path.exists():
        return "", {}
    data = json.loads(path.read_text("utf-8"))
    return data["release"], data["rooms"]


def write_last(root: Path, release: str, weights: Weights) -> None:
    """Write the weights of a release, for comparison with later renders."""
    data = {"release": release, "rooms": weights}
    (root / FILE).write_text(json.dumps(data, indent=2) + "\n", "utf-8", newline="\n")


def check_weights(before: Weights, now: Weights, text: str) -> Iterator[Finding]:
    """Report each new or grown room that `text` does not name.

    `text` is the section of the next release in CHANGELOG. It names a room as `store/` or, for a
    module, as `own_memory`. Without weights of a release there is nothing to report.
    """
    if not before:
        return
    for room, weights in now.items():
        growths = [
            f"{target} {before[room][target]} -> {weight}"
            if target in before.get(room, {})
            else f"{target} {weight}"
            for target, weight in weights.items()
            if weight > before.get(room, {}).get(target, 0) * GROWTH
        ]
        if growths and not re.search(rf"`{re.escape(room)}/?`", text):
            message = (
                f"does not say why {room}/ weighs more ({', '.join(growths)} tokens):"
                f" add a sentence that names `{room}/` to the section next"
            )
            yield Finding("weight", CHANGELOG, None, message)


def table(release: str, before: Weights, now: Weights) -> Iterator[str]:
    """Yield the lines of a table of the weights, with their change since the last release."""
    since = f", and the change since {release}" if release else ""
    yield f"tokens of each room{since}:"
    yield line("", list(TARGETS))
    for room, weights in now.items():
        old = before.get(room, {})
        cells = [cell(old.get(target), weights.get(target)) for target in TARGETS]
        yield line(room, cells)
    for room in sorted(before.keys() - now.keys()):
        yield line(room, ["gone"])


def cell(before: int | None, now: int | None) -> str:
    """Return the tokens of a room in a target, with their change."""
    if now is None:
        return "-"
    if not before:
        return f"{now} new"
    return f"{now} {100 * (now - before) / before:+.0f} %"


def line(room: str, cells: list[str]) -> str:
    """Return a line of the table."""
    return (f"{room:<16}" + "".join(f"{cell:<20}" for cell in cells)).rstrip()
