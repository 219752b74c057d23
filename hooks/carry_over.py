"""Carry an owner's edits over to modules that moved, and fix imports.

An owner runs this file in a project after an update from a release before 0.8.0, and before the
commit: `uv run --no-project .../hooks/carry_over.py`. It needs git and uvx, but no packages.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ANSWERS = ".copier-answers.yml"
# Modules of these folders moved to the folder `harness` in them.
TOPS = re.compile(r"src/app|src|tests")
# Modules that were also renamed. The others keep their names.
RENAMED = {
    "mcp_servers/wiring": "mcp_servers/capability",
    "memory/memory_iam": "memory/agentcore_kind",
    "memory/own_stores": "own_memory",
    "memory/wiring": "memory/long_term",
    "offline_model": "echo_model",
    "page/index": "page/capability",
    "store/check": "store/capability",
    "store/erase": "memory/session_erasure",
    "store/owner": "store/snapshot",
    "ui_messages": "stored_messages",
}

Moves = dict[str, str]  # the new path of a module by its old path


def run(*command: str) -> str:
    """Return the output of a command, and ignore its exit code."""
    result = subprocess.run(command, stdout=subprocess.PIPE)
    return result.stdout.decode("utf-8")


def split(output: str) -> list[str]:
    """Return the paths that a command of Git prints with `-z`."""
    return output.split("\0")[:-1]


def write(path: str, text: str) -> None:
    """Write a text with the line endings that Git stores."""
    Path(path).write_text(text, "utf-8", newline="\n")


def render_last_update(folder: str) -> None:
    """Render the release of the last update into a folder: the project without the edits."""
    answers = run("git", "show", f"HEAD:./{ANSWERS}")
    version = re.search(r"(?m)^_commit: (\S+)", answers)
    if version is None:
        sys.exit(f"Run this in the folder of the project: HEAD has no {ANSWERS} in this folder.")
    write(f"{folder}/{ANSWERS}", answers)
    subprocess.run(["uvx", "copier", "recopy", "-qfr", version[1], folder], check=True)


def deleted() -> list[str]:
    """Return the sources and tests that the update has deleted."""
    options = ("--name-only", "--diff-filter=D", "--relative", "--no-renames", "--no-ext-diff")
    return split(run("git", "diff", "-z", *options, "HEAD", "--", "src", "tests"))


def new_place(old: str) -> str | None:
    """Return the new path of a module, or None if the module was removed."""
    top = TOPS.match(old)
    assert top is not None
    path = Path(old).relative_to(top[0])
    folder = Path(top[0])
    harness = folder / "harness"
    new_name = RENAMED.get(path.with_suffix("").as_posix(), "") + path.suffix
    for name in (new_name, path.as_posix()):
        places = [harness / name, *sorted(harness.glob(f"*/{name}")), folder / name]
        for place in places:
            if place.is_file():
                return place.as_posix()
    return None


def carry(old: str, new: str | None, render: str) -> None:
    """Merge the edits of a module into its new path. Edits that do not fit go to a `.rej` file."""
    last = f"{render}/{old}"
    yours = f"{render}/yours"
    write(yours, run("git", "show", f"HEAD:./{old}"))
    diff = run("git", "diff", "--no-index", "--no-ext-diff", "-U1", last, yours)
    edits = diff.partition("\n@@")[2]
    if not edits:
        return
    if new is None:
        print(f"{old} was removed. To see your edits, type: git diff HEAD -- {old}")
        return
    for path in (last, yours):
        write(path, with_new_integers(Path(path).read_text("utf-8")))
    merge = ["git", "merge-file", "--quiet"]
    conflicts = subprocess.run([*merge, "-p", new, last, yours], stdout=subprocess.DEVNULL)
    run(*merge, "--ours", new, last, yours)
    print(f"{old} -> {new}")
    if conflicts.returncode:
        write(f"{new}.rej", f"@@{edits}")
        print(f"  Some edits do not fit: make those in {new}.rej by hand.")


def with_new_integers(text: str) -> str:
    """Return the text of an old settings.ts with integers in the new form."""
    return re.sub(r"(?m)^(  \w+: )\[([\d_]+, [\d_]+, [\d_]+)\],", r"\1integer(\2),", text)


def relative(path: str, folder: str, moves: Moves) -> str | None:
    """Return the new path of a module relative to a folder, or None if it did not move."""
    new = moves.get(Path(os.path.normpath(path)).as_posix())
    return Path(os.path.relpath(new, folder)).as_posix() if new else None


def fix_python(text: str, folder: str, moves: Moves) -> str:
    """Return a Python module that imports from the new paths."""

    def fix(match: re.Match[str]) -> str:
        dots, name = match.groups()
        up = "../" * (len(dots) - 1)
        path = relative(f"{folder}/{up}{name.replace('.', '/')}.py", folder, moves)
        if path is None:
            return match[0]
        new = path.replace("../", "").removesuffix(".py").replace("/", ".")
        return f"from .{'.' * path.count('../')}{new} import"

    text = re.sub(r"\bfrom (\.+)(\w[\w.]*) import\b", fix, text)
    for old, new in moves.items():
        text = re.sub(rf"\b{re.escape(dotted(old))}\b", dotted(new), text)
    return text


def dotted(path: str) -> str:
    """Return the dotted name of a Python module."""
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def fix_typescript(text: str, folder: str, moves: Moves) -> str:
    """Return a TypeScript module that imports from the new paths."""

    def fix(match: re.Match[str]) -> str:
        path = relative(f"{folder}/{match[2]}", folder, moves)
        if path is None:
            return match[0]
        return match[1] + (path if path.startswith("../") else f"./{path}") + match[1]

    return re.sub(r"(['\"])(\.\.?/[^'\"\n]+\.ts)\1", fix, text)


def fix_imports(moves: Moves) -> None:
    """Fix the imports in all tracked sources. The template's own new files are not tracked yet."""
    for path in split(run("git", "grep", "-lz", "import", "--", "*.py", "*.ts")):
        fix = fix_python if path.endswith(".py") else fix_typescript
        text = Path(path).read_text("utf-8")
        result = fix(text, Path(path).parent.as_posix(), moves)
        if result != text:
            write(path, result)
            print(f"{path}: fixed imports")


def main() -> None:
    """Carry all edits over, and report each changed file."""
    with tempfile.TemporaryDirectory() as render:
        render_last_update(render)
        places = {old: new_place(old) for old in deleted()}
        for old, new in places.items():
            carry(old, new, render)
    fix_imports({old: new for old, new in places.items() if new is not None})


if __name__ == "__main__":
    main()
