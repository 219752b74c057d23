"""Carry an owner's edits of modules that have moved to their new place, and mend imports.

An owner runs this file in a project, between an update from a release before 0.8.0 and the commit
of it: `uv run --no-project .../hooks/carry_over.py`. It needs git, uvx and no package.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ANSWERS = ".copier-answers.yml"
# The folders whose modules moved to a folder `harness` in them.
TOPS = re.compile(r"src/app|src|tests")
# Modules that got another name, too. All others are found by theirs.
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

Moves = dict[str, str]  # the old path of a module, and the new one


def run(*command: str) -> str:
    """Run a command and return its output, whatever its exit code is."""
    result = subprocess.run(command, stdout=subprocess.PIPE)
    return result.stdout.decode("utf-8")


def split(output: str) -> list[str]:
    """Return the paths that a command of Git prints with `-z`."""
    return output.split("\0")[:-1]


def write(path: str, text: str) -> None:
    """Write a text with the line ends that Git stores."""
    Path(path).write_text(text, "utf-8", newline="\n")


def render_last_update(folder: str) -> None:
    """Render the release of the last update into a folder: the project without its edits."""
    answers = run("git", "show", f"HEAD:./{ANSWERS}")
    version = re.search(r"(?m)^_commit: (\S+)", answers)
    if version is None:
        sys.exit(f"Run this in the folder of the project: HEAD has no {ANSWERS} here.")
    write(f"{folder}/{ANSWERS}", answers)
    subprocess.run(["uvx", "copier", "recopy", "-qfr", version[1], folder], check=True)


def deleted() -> list[str]:
    """Return the sources and tests that the update has deleted."""
    options = ("--name-only", "--diff-filter=D", "--relative", "--no-renames", "--no-ext-diff")
    return split(run("git", "diff", "-z", *options, "HEAD", "--", "src", "tests"))


def new_place(old: str) -> str | None:
    """Return the path to which a module has moved, or None if it is gone."""
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
    """Merge the edits of a module into its new place; those that do not fit go to a file `.rej`."""
    last, yours = f"{render}/{old}", f"{render}/yours"
    write(yours, run("git", "show", f"HEAD:./{old}"))
    diff = run("git", "diff", "--no-index", "--no-ext-diff", "-U1", last, yours)
    edits = diff.partition("\n@@")[2]
    if not edits:
        return
    if new is None:
        print(f"{old} has no successor. Your edits: git diff HEAD -- {old}")
        return
    for path in (last, yours):
        write(path, as_declared_now(Path(path).read_text("utf-8")))
    merge = ["git", "merge-file", "--quiet"]
    conflicts = subprocess.run([*merge, "-p", new, last, yours], stdout=subprocess.DEVNULL)
    run(*merge, "--ours", new, last, yours)
    print(f"{old} -> {new}")
    if conflicts.returncode:
        write(f"{new}.rej", f"@@{edits}")
        print(f"  Not all of your edits fit there: see {new}.rej")


def as_declared_now(text: str) -> str:
    """Return the text of an old settings.ts with its numbers declared as in the new one."""
    return re.sub(r"(?m)^(  \w+: )\[([\d_]+, [\d_]+, [\d_]+)\],", r"\1integer(\2),", text)


def relative(path: str, folder: str, moves: Moves) -> str | None:
    """Return the new path of a module, seen from a folder, or None if it has not moved."""
    new = moves.get(Path(os.path.normpath(path)).as_posix())
    return Path(os.path.relpath(new, folder)).as_posix() if new else None


def mend_python(text: str, folder: str, moves: Moves) -> str:
    """Return a module of Python with imports from the new places."""

    def mend(match: re.Match[str]) -> str:
        dots, name = match.groups()
        up = "../" * (len(dots) - 1)
        path = relative(f"{folder}/{up}{name.replace('.', '/')}.py", folder, moves)
        if path is None:
            return match[0]
        new = path.replace("../", "").removesuffix(".py").replace("/", ".")
        return f"from .{'.' * path.count('../')}{new} import"

    text = re.sub(r"\bfrom (\.+)(\w[\w.]*) import\b", mend, text)
    for old, new in moves.items():
        text = re.sub(rf"\b{re.escape(dotted(old))}\b", dotted(new), text)
    return text


def dotted(path: str) -> str:
    """Return the name of a module in Python."""
    return path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def mend_typescript(text: str, folder: str, moves: Moves) -> str:
    """Return a module of TypeScript with imports from the new places."""

    def mend(match: re.Match[str]) -> str:
        path = relative(f"{folder}/{match[2]}", folder, moves)
        if path is None:
            return match[0]
        return match[1] + (path if path.startswith("../") else f"./{path}") + match[1]

    return re.sub(r"(['\"])(\.\.?/[^'\"\n]+\.ts)\1", mend, text)


def mend_imports(moves: Moves) -> None:
    """Mend the imports of all sources that Git knows: those of the template are new files."""
    for path in split(run("git", "grep", "-lz", "import", "--", "*.py", "*.ts")):
        mend = mend_python if path.endswith(".py") else mend_typescript
        text = Path(path).read_text("utf-8")
        mended = mend(text, Path(path).parent.as_posix(), moves)
        if mended != text:
            write(path, mended)
            print(f"{path} imports from harness/ now")


def main() -> None:
    """Carry all edits over, and report each file that changes."""
    with tempfile.TemporaryDirectory() as render:
        render_last_update(render)
        places = {old: new_place(old) for old in deleted()}
        for old, new in places.items():
            carry(old, new, render)
    mend_imports({old: new for old, new in places.items() if new is not None})


if __name__ == "__main__":
    main()
