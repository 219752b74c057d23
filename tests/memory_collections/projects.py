"""Projects with memory collections, made from examples and edits, and what `check` finds in them.

A vector of conformance/collections/*.yaml starts from an example and edits it, one after the other:
  [old, new]               in the example's collection, where `old` stands once
  [agent | iam, old, new]  in its agent's file, or in its grants
  {cut: [a, b], by: text}  all from the line that starts with a up to the one that starts with b
  {file: path}             deleted; with `text`, `base64`, `folder: true` or `link` it is that
  {file: path, repeat: text, times: n}  n times the text behind what is there
  {file: path, copy: path} a copy, with `edits` in it, which are [old, new]
With `variables` these are the environment, and findings about it count too. It is checked in the
render that has code for the example's backend, or in that of the session store `render`.
Its findings are lines of "<id> <file>:<line>"; without a file it is the example's collection. The
line of a YAML error is the parser's, and written as -.
"""

import base64
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.installed import NODE, clean_environment, installed

FOLDER = Path(__file__).parents[1] / "conformance" / "collections"
EXAMPLES = sorted(path.name for path in (FOLDER / "examples").iterdir())
# The render that has code for the backend of an example: the answer that brings it.
RENDERS = {name: name for name in EXAMPLES} | {"rest": "custom", "lambda": "custom"}
LANGUAGES = ("python", "typescript")
HANG_SECONDS = 300
Edits = list[Any]


@dataclass(frozen=True)
class Case:
    """A project to check, and the findings that it has to have."""

    name: str
    example: str
    edits: Edits
    expected: list[str]
    agent: str | None = None
    render: str | None = None
    variables: dict[str, str] | None = None

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the project to `folder`; return the request that checks it."""
        folder.mkdir(parents=True)
        put(folder, edited(self.example, self.edits))
        render = self.render or RENDERS[self.example]
        known = {"agent_id": self.agent, "variables": self.variables, "render": render}
        return {"folder": str(folder), **known}


def files_of(example: str) -> dict[str, Any]:
    """The texts of an example by their paths, to change."""
    return dict(_read(example))


@cache
def _read(example: str) -> dict[str, str]:
    top = FOLDER / "examples" / example
    return {path.relative_to(top).as_posix(): path.read_text("utf-8") for path in top.rglob("*.md")}


def edited(example: str, edits: Edits) -> dict[str, Any]:
    """The files of an example after edits: texts, bytes, or what makes a folder or a link."""
    files = files_of(example)
    collection = next(path for path in files if path.startswith("collections/"))
    short = {"agent": "agents/support.agent.md", "iam": "iam/support.iam.md"}
    for edit in edits:
        if isinstance(edit, dict) and "file" in edit:
            whole_file(files, edit)
            continue
        path = collection
        if isinstance(edit, list) and edit[0] in short:
            path, edit = short[edit[0]], edit[1:]
        files[path] = changed(files[path], edit)
    return files


def whole_file(files: dict[str, Any], edit: dict[str, Any]) -> None:
    """Delete, make, copy or lengthen a file."""
    path = edit["file"]
    if "text" in edit:
        files[path] = edit["text"]
    elif "base64" in edit:
        files[path] = base64.b64decode(edit["base64"])
    elif "repeat" in edit:
        files[path] += edit["repeat"] * edit["times"]
    elif "copy" in edit:
        files[path] = files[edit["copy"]]
        for part in edit.get("edits", []):
            files[path] = changed(files[path], part)
    elif "folder" in edit or "link" in edit:
        files[path] = edit
    else:
        del files[path]


def changed(text: str, edit: Any) -> str:
    """A text after one edit. Raises AssertionError when its place is not to be found, or twice."""
    if isinstance(edit, dict):
        start, end = (("\n" + text).index("\n" + line) for line in edit["cut"])
        by: str = edit.get("by", "")
        return text[:start] + by + text[end:]
    old, new = str(edit[0]), str(edit[1])
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)


def put(folder: Path, files: dict[str, Any]) -> None:
    """Write files, folders and links."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            target.symlink_to(content["link"]) if "link" in content else target.mkdir()
        else:
            target.write_bytes(content if isinstance(content, bytes) else content.encode())


def findings(language: str, projects: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What `check` finds in each project."""
    return [one["found"] for one in in_renders(language, "check", projects)]


def findings_of_both(projects: list[dict[str, Any]]) -> dict[str, list[list[dict[str, Any]]]]:
    """The same by language; both look at once.

    What they look with is installed before: Copier changes the folder of the whole process.
    """
    for render in dict.fromkeys(one["render"] for one in projects):
        for language in LANGUAGES:
            installed(f"strands-{language}+{render}")
    with ThreadPoolExecutor() as pool:
        both = pool.map(lambda language: findings(language, projects), LANGUAGES)
        return dict(zip(LANGUAGES, both, strict=True))


def in_renders(language: str, driver: str, projects: list[dict[str, Any]]) -> list[Any]:
    """The answers of a driver about projects, in one process of each render that they name."""
    found: list[Any] = [None] * len(projects)
    for render in dict.fromkeys(one["render"] for one in projects):
        places = [place for place, one in enumerate(projects) if one["render"] == render]
        answers = run_in_render(language, render, driver, [projects[place] for place in places])
        for place, answer in zip(places, answers, strict=True):
            found[place] = answer
    return found


def run_in_render(language: str, render: str, driver: str, request: Any) -> Any:
    """Return the answer of a driver beside the vectors, which runs in a render of that language.

    A driver that hangs is killed.
    """
    project = installed(f"strands-{language}+{render}")
    python = project / ".venv" / "bin" / "python"
    program, suffix = (python, "py") if language == "python" else (NODE, "mjs")
    result = subprocess.run(
        [str(program), str(FOLDER / f"{driver}.{suffix}")],
        cwd=project,
        env={**clean_environment(), "PYTHONPATH": "src"},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def as_lines(found: list[dict[str, Any]]) -> list[str]:
    """Findings as vectors write them, with their file."""
    return [f"{one['id']} {one['file']}:{_line(one)}" for one in found]


def _line(one: dict[str, Any]) -> int | str:
    return "-" if one["id"] == "AML-E002" else int(one["line"])


def read_yaml(text: str) -> Any:
    """What a file of vectors says, read by the parser in C, which takes a tenth of the time."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def vectors() -> dict[str, Any]:
    """The rows of rules.yaml by name: an id, and words behind it where an id has several."""
    rows: dict[str, Any] = read_yaml((FOLDER / "rules.yaml").read_text("utf-8"))
    return rows


def ids(language: str) -> set[str]:
    """The ids that the source of a language names."""
    folder = FOLDER.parents[2] / "template" / language
    found = folder.glob("*/src/**/collections/*.*")
    sources = [path.read_text("utf-8") for path in found if path.is_file()]
    return set(re.findall("AML-[EW][0-9A-F]{3}", "".join(sources)))


def cases() -> list[Case]:
    """The vectors: for each rule those that break it and those that do not, and those of files."""
    made = [Case(f"example {name}", name, [], []) for name in EXAMPLES]
    for name, row in vectors().items():
        sides = [side for side in ("wrong", "right") if side in row]
        made += [_case(f"{name} {side}", row["example"], row[side]) for side in sides]
    for name, row in read_yaml((FOLDER / "files.yaml").read_text("utf-8")).items():
        made += [_case(name, row["example"], row)]
    return made


def _case(name: str, example: str, row: dict[str, Any]) -> Case:
    collection = next(path for path in files_of(example) if path.startswith("collections/"))
    expected = [
        line if ":" in line else line.replace(" ", f" {collection}:") for line in row["found"]
    ]
    more = {key: row[key] for key in ("agent", "render", "variables") if key in row}
    return Case(name, example, row["edits"], expected, **more)
