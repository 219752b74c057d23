"""Checks against an earlier commit: what would be lost when its projects are updated to this."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hooks.committed import extracted
from hooks.loading import load
from hooks.template import FILES, QUESTIONS, Finding, Template, TemplateError

OWN = ("agent", "model", "own_capabilities", "own_memory", "routes")
# The files of a project that its owner edits. An update deletes what the template no longer has,
# with the edits in it and without a word, so these keep their names for ever.
EDITED = [
    ".dockerignore",
    ".env.example",
    ".github/workflows/ci.yml",
    ".gitignore",
    ".npmrc",
    "AGENTS.md",
    "Dockerfile",
    "README.md",
    "agents/*.md",
    "collections/*.md",
    "compose.yaml",
    "haproxy.cfg",
    "iam/*.md",
    "package.json",
    "pyproject.toml",
    *(f"src/{name}.ts" for name in OWN),
    *(f"src/my_agent/{name}.py" for name in OWN),
    "tsconfig.json",
]


@contextmanager
def past(root: Path, commit: str) -> Iterator[Template]:
    """The template as it was at `commit`. Raises CommitError when Git does not have it."""
    with extracted(root, commit, QUESTIONS, FILES) as folder:
        yield load(folder)


def check_history(old: Template, new: Template) -> Iterator[Finding]:
    """Nothing that a project of `old` has recorded or edited is lost in `new`."""
    text = (new.root / QUESTIONS).read_text("utf-8")
    for name in old.asked:
        if name in new.questions:
            yield from check_choices(old, new, name)
            yield from check_default(old, new, name)
        elif f"{name} is defined" not in text:
            message = (
                f"{name} is gone, and with it the answers of projects: keep it, or give the"
                f" question that replaces it the default {{{{ {name} if {name} is defined"
                " else ... }}"
            )
            yield Finding("dropped-question", QUESTIONS, None, message)
    yield from check_edited(old, new)


def check_choices(old: Template, new: Template, name: str) -> Iterator[Finding]:
    """A recorded answer is still a choice."""
    now = choices(new, name)
    for value in sorted(map(str, choices(old, name) - now)) if now else ():
        message = (
            f"{name} has no choice {value} any more, so an update silently gives projects with that"
            " answer the default: keep it"
        )
        yield Finding("dropped-choice", QUESTIONS, None, message)


def choices(template: Template, name: str) -> set[Any]:
    """The values that question `name` may have after any answers; none without choices."""
    return {
        value for answers in template.combinations for value, _ in template.choices(name, answers)
    }


def check_default(old: Template, new: Template, name: str) -> Iterator[Finding]:
    """A default that moves is for new projects only; that of a choice may be another old choice."""
    if old.questions[name].get("default") == new.questions[name].get("default"):
        return
    before = choices(old, name)
    for answers in old.combinations:
        try:
            was, is_ = old.default(name, answers), new.default(name, answers)
        except TemplateError:
            continue  # the new default uses answers that the old template did not have
        if was != is_ and not before.issuperset(is_ if isinstance(is_, list) else [is_]):
            message = (
                f"{name}.default was {was!r} and is {is_!r}, but projects keep the one that they"
                " recorded: make it text of the template, or compute it (when: false)"
            )
            yield Finding("changed-default", QUESTIONS, None, message)
            return


def check_edited(old: Template, new: Template) -> Iterator[Finding]:
    """A file that its owner edits is rendered wherever it was."""
    shared = [name for name in old.asked if name in new.questions]
    now: dict[str, set[str]] = {}
    for answers in new.combinations:
        # As text: the answer to a multiselect is a list.
        key = str([answers[name] for name in shared])
        now.setdefault(key, set()).update(new.targets(answers).values())
    lost = set()
    for answers in old.combinations:
        here = now.get(str([answers[name] for name in shared]))
        if here is not None:
            lost |= set(old.targets(answers).values()) - here
    for path in sorted(lost):
        if any(fnmatch(path, pattern) for pattern in EDITED):
            message = (
                "is gone or has another name, and owners edit it: an update would delete it with"
                " their edits, so keep its name"
            )
            yield Finding("lost-file", path, None, message)
