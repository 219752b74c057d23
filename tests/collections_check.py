"""Projects with memory collections, made from examples and edits, and what `check` finds in them.

A vector of conformance/collections/*.yaml starts from an example and edits it, one after the other:
  [old, new]               in the example's collection, where `old` stands once
  [agent | iam, old, new]  in its agent's file, or in its grants
  {cut: [a, b], by: text}  all from the line that starts with a up to the one that starts with b
  {file: path}             deleted; with `text`, `base64`, `folder: true` or `link` it is that
  {file: path, repeat: text, times: n}  n times the text behind what is there
  {file: path, copy: path} a copy, with `edits` in it, which are [old, new]
With `variables` these are the environment, in which its secrets are looked up too.
Its findings are lines of "<id> <file>:<line>"; without a file it is the example's collection.
"""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.installed import NODE, clean_environment, installed

FOLDER = Path(__file__).parent / "conformance" / "collections"
EXAMPLES = sorted(path.name for path in (FOLDER / "examples").iterdir())
LANGUAGES = ("python", "typescript")
Edits = list[Any]


@dataclass(frozen=True)
class Case:
    """A project to check, and what has to be found; `before` is what it was at the commit."""

    name: str
    example: str
    edits: Edits
    expected: list[str]
    agent: str | None = None
    against: str | None = None
    before: Edits | None = None
    variables: dict[str, str] | None = None

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the project, with its repository, to `folder`; what a driver has to know of it."""
        folder.mkdir(parents=True)
        if self.before is not None:
            put(folder, edited(self.example, self.before))
            for command in ("init -q", "add -A", "commit -qm before"):
                git(folder, *command.split())
            for path in sorted(folder.rglob("*.md"), reverse=True):
                path.unlink()
        put(folder, edited(self.example, self.edits))
        known = {"agent_id": self.agent, "against": self.against, "variables": self.variables}
        return {"folder": str(folder), **known}


def git(folder: Path, *arguments: str) -> None:
    """Run Git in a folder as nobody in particular."""
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def files_of(example: str) -> dict[str, Any]:
    """The texts of an example by their paths."""
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
    """What `check` finds in each project, in one process of a render in that language."""
    project = installed(f"strands-{language}+openai-compatible", session_store="valkey")
    python = str(project / ".venv" / "bin" / "python")
    driver = FOLDER / ("check.py" if language == "python" else "check.mjs")
    command = [python, driver] if language == "python" else [NODE, driver]
    result = subprocess.run(
        [str(part) for part in command],
        cwd=project,
        env=clean_environment(),
        input=json.dumps(projects),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: list[list[dict[str, Any]]] = json.loads(result.stdout)
    return found


def as_lines(found: list[dict[str, Any]]) -> list[str]:
    """Findings as vectors write them, with their file."""
    return [f"{one['id']} {one['file']}:{one['line']}" for one in found]


def rules() -> dict[str, dict[str, Any]]:
    """The rows of rules.json by their ids."""
    layer = FOLDER.parents[2] / "template" / "{{ layer.memory_src }}"
    text = (layer / "memory" / "rules.json").read_text("utf-8")
    return {rule["id"]: rule for rule in json.loads(text)["rules"]}


def cases() -> list[Case]:
    """The vectors: for each rule one that breaks it and one that does not, and those of files."""
    made = [Case(f"example {name}", name, [], []) for name in EXAMPLES]
    for id, row in yaml.safe_load((FOLDER / "rules.yaml").read_text("utf-8")).items():
        made += [_case(f"{id} {side}", row["example"], row[side]) for side in ("wrong", "right")]
    for name, row in yaml.safe_load((FOLDER / "files.yaml").read_text("utf-8")).items():
        made += [_case(name, row["example"], row)]
    return made


def _case(name: str, example: str, row: dict[str, Any]) -> Case:
    collection = next(path for path in files_of(example) if path.startswith("collections/"))
    expected = [
        line if ":" in line else line.replace(" ", f" {collection}:") for line in row["found"]
    ]
    more = {key: row[key] for key in ("agent", "against", "before", "variables") if key in row}
    return Case(name, example, row["edits"], expected, **more)
