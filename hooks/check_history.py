"""Checks against an earlier commit: losses when its projects are updated."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hooks.committed import extracted
from hooks.loading import load
from hooks.template import FILES, QUESTIONS, Finding, Template, TemplateError

OWN = ("agent", "model", "own_capabilities", "own_memory", "routes")
# Files that owners edit. An update silently deletes files that the template no longer has, with
# the owner's edits. So these files keep their names.
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
    """Yield the template at `commit`. Raises CommitError if Git does not have the commit."""
    with extracted(root, commit, QUESTIONS, FILES) as folder:
        yield load(folder)


def check_history(old: Template, new: Template) -> Iterator[Finding]:
    """Report recorded answers and edited files of `old` that `new` would lose."""
    text = (new.root / QUESTIONS).read_text("utf-8")
    for name in old.asked:
        if name in new.questions:
            yield from check_choices(old, new, name)
            yield from check_default(old, new, name)
        elif f"{name} is defined" not in text:
            message = (
                f"{name} is gone, so projects lose their answers: keep it, or give the new"
                f" question the default {{{{ {name} if {name} is defined"
                " else ... }}"
            )
            yield Finding("dropped-question", QUESTIONS, None, message)
    yield from check_edited(old, new)


def check_choices(old: Template, new: Template, name: str) -> Iterator[Finding]:
    """Report answers that are no longer choices."""
    now = choices(new, name)
    for value in sorted(map(str, choices(old, name) - now)) if now else ():
        message = (
            f"{name} no longer has the choice {value}, so an update silently replaces it with the"
            " default: keep it"
        )
        yield Finding("dropped-choice", QUESTIONS, None, message)


def choices(template: Template, name: str) -> set[Any]:
    """Return the values of question `name` after any answers; empty without choices."""
    is_text = isinstance(template.questions[name].get("choices"), str)
    sets = template.combinations if is_text else [{}]
    return {value for answers in sets for value, _ in template.choices(name, answers)}


def check_default(old: Template, new: Template, name: str) -> Iterator[Finding]:
    """Report changed defaults. The default of a choice may become another earlier choice."""
    if old.questions[name].get("default") == new.questions[name].get("default"):
        return
    before = choices(old, name)
    for answers in old.combinations:
        try:
            was = old.default(name, answers)
            is_ = new.default(name, answers)
        except TemplateError:
            continue  # the new default uses answers that the old template did not have
        if was != is_ and not before.issuperset(is_ if isinstance(is_, list) else [is_]):
            message = (
                f"{name}.default was {was!r} and is {is_!r}, but projects keep their recorded"
                " answer: make it text of the template, or compute it (when: false)"
            )
            yield Finding("changed-default", QUESTIONS, None, message)
            return


def check_edited(old: Template, new: Template) -> Iterator[Finding]:
    """Report files that owners edit and that some answers no longer render."""
    names = [name for name in old.asked if name in new.questions]
    possible = {*answers_to(new, names)}
    now = edited(new, names)
    for path, before in sorted(edited(old, names).items()):
        if before & possible - now.get(path, set()):
            message = (
                "is gone or renamed, but owners edit it, and an update would delete their edits:"
                " keep its name"
            )
            yield Finding("lost-file", path, None, message)


def edited(template: Template, names: list[str]) -> dict[str, set[str]]:
    """Return the files that owners edit, each with the answers that render it."""
    texts = answers_to(template, names)
    found = dict[str, set[str]]()
    for places in template.targets.values():
        for path, bits in places.items():
            if any(fnmatch(path, pattern) for pattern in EDITED):
                members = {text for at, text in enumerate(texts) if bits >> at & 1}
                found.setdefault(path, set()).update(members)
    return found


def answers_to(template: Template, names: list[str]) -> list[str]:
    """Return the answers to these questions in each combination, as text."""
    return [str([answers[name] for name in names]) for answers in template.combinations]
