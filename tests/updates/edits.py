"""What an owner does to a project: a line in each file that owners edit, and files of their own."""

from dataclasses import dataclass
from pathlib import Path

from tests.updates.history import commit, git

PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
OUR_PROMPT = "You are the assistant of a bookshop. Answer in one sentence."


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
    Edit(".github/workflows/ci.yml", "name: ci\n", "run-name: checks of the bookshop\n"),
    Edit(".gitignore", ".env\n", "notes/\n"),
    Edit("AGENTS.md", "# For coding agents\n", "\n- Ask the bookshop before a release.\n"),
    Edit("README.md", "# my-agent\n", "\nIt belongs to the bookshop.\n"),
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
    Edit(".env.example", "the other settings.\n", "BOOKSHOP=main-street\n"),
    Edit(".npmrc", "engine-strict=true\n", "fund=false\n"),
    Edit("package.json", '"private": true,\n', '  "description": "The bookshop",\n'),
    # Where npm puts it.
    Edit(
        "package.json", '    "lru-cache"', '    "eventsource-parser": "*",\n    "lru-cache"', True
    ),
    Edit("src/agent.ts", PROMPT, OUR_PROMPT, instead=True),
    Edit("src/agent.ts", "from 'zod'\n", "\nimport { shelfOf } from './shelves.ts'\n"),
    Edit("src/model.ts", "Which model answers", " the bookshop"),
    Edit("tsconfig.json", '"strict": true,\n', '    "noImplicitReturns": true,\n'),
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

# The files in which memory is declared: an approval at the end of each, and other values.
APPROVED = "\nThe bookshop approved this.\n"
SESSIONS, MEMORIES = "collections/sessions.collection.md", "collections/memories.collection.md"
DECLARED = [
    Edit("agents/my-agent.agent.md", "that it reads and writes.\n", APPROVED),
    Edit("collections/README.md", "# Memory collections\n", APPROVED),
    Edit("iam/my-agent.iam.md", "What is not listed is denied.\n", APPROVED),
]
STORED = Edit(SESSIONS, "folder says how.\n", APPROVED)
OPTIONS = {
    "valkey": [STORED, Edit(SESSIONS, "ttl_seconds: 86400", "ttl_seconds: 3600", instead=True)],
    "s3": [STORED, Edit(SESSIONS, '"us-east-1"', '"eu-west-1"', instead=True)],
    "custom": [STORED, Edit(SESSIONS, "timeout_ms: 3000", "timeout_ms: 2500", instead=True)],
    "agentcore": [
        Edit(MEMORIES, "how they belong together.\n", APPROVED),
        Edit(MEMORIES, '"us-east-1"', '"eu-west-1"', instead=True),
    ],
}
OWN_STORES = {
    "strands-python": Edit("src/app/memory/own_stores.py", "    return []", "  # none yet"),
    "strands-typescript": Edit("src/memory/own_stores.ts", "  return []", " // none yet"),
}

# Files of the owner's own: a tool, and, in the folder of the template's own memory code, a module
# that a test of the owner's uses.
PYTHON_TOOL = '''"""Where the books are."""

{imported}


@{decorator}
async def shelf_of(title: str) -> str:
    """Say on which shelf a book is."""
    return title[:1].upper()
'''
PYTHON_FILES = {
    "src/app/memory/receipts.py": '''"""Receipts of the bookshop."""


def receipt(title: str) -> str:
    """One line of a receipt."""
    return f"1 x {title}"
''',
    "tests/test_receipts.py": """from app.memory.receipts import receipt


def test_a_receipt_names_the_book() -> None:
    assert receipt("Emma") == "1 x Emma"
""",
}
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
TYPESCRIPT_FILES = {
    "src/memory/receipts.ts": """// Receipts of the bookshop.

export const receipt = (title: string): string => `1 x ${title}`
""",
    "tests/receipts.test.ts": """import assert from 'node:assert/strict'
import { test } from 'node:test'

import { receipt } from '../src/memory/receipts.ts'

test('a receipt names the book', () => assert.equal(receipt('Emma'), '1 x Emma'))
""",
}
FILES = {
    "strands-python": {
        "src/app/shelves.py": PYTHON_TOOL.format(
            imported="from strands import tool", decorator="tool"
        ),
        **PYTHON_FILES,
    },
    "vercel-python": {
        "src/app/shelves.py": PYTHON_TOOL.format(imported="import ai", decorator="ai.tool"),
        **PYTHON_FILES,
    },
    "strands-typescript": {
        "src/shelves.ts": TYPESCRIPT_TOOL.format(
            package="@strands-agents/sdk", name=NAME, callback="callback"
        ),
        **TYPESCRIPT_FILES,
    },
    "vercel-typescript": {
        "src/shelves.ts": TYPESCRIPT_TOOL.format(package="ai", name="", callback="execute"),
        **TYPESCRIPT_FILES,
    },
}
DELETED = {"python": ".env.example", "typescript": ".npmrc"}


def edits_of(variant: str, tree: dict[str, bytes]) -> list[Edit]:
    """The edits of a variant; with another model only, `tree` has no collections."""
    target, *options = variant.split("+")
    edits = [*EDITS[target], *(DECLARED if options else [])]
    for option in options:
        edits += OPTIONS.get(option, [])
    if "agentcore" in options and target in OWN_STORES:
        edits.append(OWN_STORES[target])
    return [change for change in edits if change.path in tree]


def edit(project: Path, variant: str) -> None:
    """Do and commit all of it in a project of `variant`."""
    tree = {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }
    target = variant.partition("+")[0]
    for path, text in FILES[target].items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).with_stem("draft").write_text(text, "utf-8")
        commit(project, "A file of our own, which had another name at first")
        git(project, "mv", Path(path).with_stem("draft").as_posix(), path)
    for change in edits_of(variant, tree):
        file = project / change.path
        file.write_text(change.of(file.read_text("utf-8")), "utf-8")
    (project / DELETED[target.rpartition("-")[2]]).unlink()
    commit(project, "What we changed")


def edited(tree: dict[str, bytes], variant: str) -> dict[str, bytes]:
    """The files of a copy, when somebody has done all of it to them."""
    target = variant.partition("+")[0]
    new = tree | {path: text.encode() for path, text in FILES[target].items()}
    for change in edits_of(variant, tree):
        new[change.path] = change.of(new[change.path].decode()).encode()
    del new[DELETED[target.rpartition("-")[2]]]
    return new
