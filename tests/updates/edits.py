"""What an owner does to a project: a line in each file that owners edit, and files of their own."""

from dataclasses import dataclass
from pathlib import Path

from tests.updates.history import commit, git

PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
OUR_PROMPT = "You are the assistant of a bookshop. Answer in one sentence."
DELETED = ".env.example"


@dataclass(frozen=True)
class Edit:
    """In the file `path`, `new` is added after the text `old`, or is put in its place."""

    path: str
    old: str
    new: str
    instead: bool = False

    def of(self, text: str) -> str:
        """The text of the file with the edit in it."""
        assert text.count(self.old) == 1, f"{self.path} has {text.count(self.old)} x {self.old!r}"
        return text.replace(self.old, self.new if self.instead else self.old + self.new)


EVERYWHERE = [
    Edit("README.md", "# my-agent\n", "\nIt belongs to the bookshop.\n"),
    Edit("AGENTS.md", "# For coding agents\n", "\n- Ask the bookshop before a release.\n"),
    Edit(".gitignore", ".env\n", "notes/\n"),
    Edit(".github/workflows/ci.yml", "name: ci\n", "run-name: checks of the bookshop\n"),
]
PYTHON = [
    *EVERYWHERE,
    Edit("pyproject.toml", 'version = "0.1.0"\n', 'description = "The bookshop"\n'),
    Edit("pyproject.toml", "dependencies = [\n", '    "certifi>=2024",\n'),
    Edit("src/app/agent.py", PROMPT, OUR_PROMPT, instead=True),
    Edit("src/app/agent.py", "from typing import Any\n", "\nfrom app.shelves import shelf_of\n"),
    Edit("src/app/agent.py", "[word_count", ", shelf_of"),
    Edit("src/app/model.py", "Which model answers", " the bookshop"),
]
TYPESCRIPT = [
    *EVERYWHERE,
    Edit("package.json", '"private": true,\n', '  "description": "The bookshop",\n'),
    Edit("package.json", '"dependencies": {\n', '    "eventsource-parser": "*",\n'),
    Edit("src/agent.ts", PROMPT, OUR_PROMPT, instead=True),
    Edit("src/agent.ts", "from 'zod'\n", "\nimport { shelfOf } from './shelves.ts'\n"),
    Edit("src/model.ts", "Which model answers", " the bookshop"),
]
EDITS = {
    "strands-python": PYTHON,
    "vercel-python": PYTHON,
    "strands-typescript": [*TYPESCRIPT, Edit("src/agent.ts", "[wordCount", ", shelfOf")],
    "vercel-typescript": [
        *TYPESCRIPT,
        Edit("src/agent.ts", "word_count: wordCount", ", shelf_of: shelfOf"),
    ],
}
PYTHON_TOOL = '''"""Where the books are."""

{imported}


@{decorator}
async def shelf_of(title: str) -> str:
    """Say on which shelf a book is."""
    return title[:1].upper()
'''
TYPESCRIPT_TOOL = """// Where the books are.

import {{ tool }} from '{package}'
import {{ z }} from 'zod'

export const shelfOf = tool({{{name}
  description: 'Say on which shelf a book is.',
  inputSchema: z.object({{ title: z.string() }}),
  {callback}: ({{ title }}) => title.slice(0, 1).toUpperCase(),
}})
"""
NAME = "\n  name: 'shelf_of',"
# A module of the owner's own; it had another name at first.
MODULE = {
    "strands-python": (
        "src/app/shelves.py",
        PYTHON_TOOL.format(imported="from strands import tool", decorator="tool"),
    ),
    "vercel-python": (
        "src/app/shelves.py",
        PYTHON_TOOL.format(imported="import ai", decorator="ai.tool"),
    ),
    "strands-typescript": (
        "src/shelves.ts",
        TYPESCRIPT_TOOL.format(package="@strands-agents/sdk", name=NAME, callback="callback"),
    ),
    "vercel-typescript": (
        "src/shelves.ts",
        TYPESCRIPT_TOOL.format(package="ai", name="", callback="execute"),
    ),
}


def edit(project: Path, target: str) -> None:
    """Do and commit all of it in a project of `target`."""
    path, text = MODULE[target]
    (project / path).with_stem("books").write_text(text, "utf-8")
    commit(project, "A module of our own")
    git(project, "mv", Path(path).with_stem("books").as_posix(), path)
    for change in EDITS[target]:
        file = project / change.path
        file.write_text(change.of(file.read_text("utf-8")), "utf-8")
    (project / DELETED).unlink()
    commit(project, "What we changed")


def edited(tree: dict[str, bytes], target: str) -> dict[str, bytes]:
    """The files of a copy, when somebody has done all of it to them."""
    path, text = MODULE[target]
    tree = {**tree, path: text.encode()}
    for change in EDITS[target]:
        tree[change.path] = change.of(tree[change.path].decode()).encode()
    del tree[DELETED]
    return tree
