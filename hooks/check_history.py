"""Checks against an earlier commit: what would be lost when its projects are updated to this."""

import io
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hooks.committed import read_or_refuse
from hooks.findings import Finding
from hooks.loading import load
from hooks.template import FILES, QUESTIONS, Template, TemplateError

# The files of a project that its owner edits. An update deletes what the template has no longer,
# with the edits in it and without a word, so these keep their names for ever.
EDITED = [
    ".env.example",
    ".github/workflows/*.yml",
    ".gitignore",
    ".npmrc",
    "AGENTS.md",
    "README.md",
    "agents/*.md",
    "collections/*.md",
    "iam/*.md",
    "package.json",
    "pyproject.toml",
    "src/agent.ts",
    "src/app/agent.py",
    "src/app/model.py",
    "src/model.ts",
    "tsconfig.json",
]


@contextmanager
def past(root: Path, commit: str) -> Iterator[Template]:
    """The template as it was at `commit`. Raises CommitError when Git does not have it."""
    data = read_or_refuse(root, "archive", commit, "--", QUESTIONS, FILES)
    with tempfile.TemporaryDirectory(prefix="past-") as folder:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
        yield load(Path(folder))


def check_history(old: Template, new: Template) -> Iterator[Finding]:
    """Nothing that a project of `old` has recorded or edited is lost in `new`."""
    yield from check_recorded(old, new)
    yield from check_edited(old, new)


def asked(template: Template) -> Iterator[str]:
    """The questions whose answers a project records."""
    return (name for name, q in template.questions.items() if q.get("when") is not False)


def check_recorded(old: Template, new: Template) -> Iterator[Finding]:
    """A recorded answer is still one, and means that nothing new stays away from old projects."""
    text = (new.root / QUESTIONS).read_text("utf-8")
    for name in asked(old):
        line = new.lines.get((name,))
        if name not in new.questions:
            if f"{name} is defined" not in text:
                message = (
                    f"{name} is gone, and with it what projects answered: keep it, or give the"
                    f" question that replaces it the default {{{{ {name} if {name} is defined"
                    " else ... }}"
                )
                yield Finding("dropped-question", QUESTIONS, None, message)
            continue
        values = {
            value for answers in [*new.combinations, {}] for value in choices(new, name, answers)
        }
        before = {
            value for answers in [*old.combinations, {}] for value in choices(old, name, answers)
        }
        for value in sorted(map(str, before - values)) if values else ():
            message = (
                f"{name} has no choice {value} any more, so an update gives projects with that"
                " answer the default without a word: keep it"
            )
            yield Finding("dropped-choice", QUESTIONS, line, message)
        yield from check_default(old, new, name, before)


def check_default(old: Template, new: Template, name: str, before: set[Any]) -> Iterator[Finding]:
    """A default that moves is for new projects only; that of a choice may be another old choice."""
    if old.questions[name].get("default") == new.questions[name].get("default"):
        return
    for answers in old.combinations:
        try:
            was, is_ = old.default(name, answers), new.default(name, answers)
        except TemplateError:
            continue
        if was != is_ and is_ not in before:
            message = (
                f"{name}.default was {was!r} and is {is_!r}, which no project follows that has"
                " recorded the old one: make it text of the template, or compute it (when: false)"
            )
            line = new.lines.get((name, "default"))
            yield Finding("changed-default", QUESTIONS, line, message)
            return


def choices(template: Template, name: str, answers: dict[str, Any]) -> set[Any]:
    """The values among which question `name` lets one choose; none when it has no choices."""
    if not template.questions[name].get("choices"):
        return set()
    try:
        return {value for value, _ in template.choices(name, answers)}
    except TemplateError:
        return set()


def check_edited(old: Template, new: Template) -> Iterator[Finding]:
    """A file that its owner edits is rendered wherever it was."""
    known = {question: new.questions[question] for question in new.questions}
    lost: dict[str, None] = {}
    now: dict[tuple[tuple[str, Any], ...], set[str]] = {}
    shared = [name for name in asked(old) if name in known]
    for answers in new.combinations:
        now.setdefault(key(answers, shared), set()).update(paths(new, answers))
    for answers in old.combinations:
        here = now.get(key(answers, shared))
        for path in paths(old, answers) - here if here is not None else ():
            if any(fnmatch(path, pattern) for pattern in EDITED):
                lost[path] = None
    for path in sorted(lost):
        message = (
            "is gone or has another name, and owners edit it: an update would delete it with their"
            " edits, so keep its name"
        )
        yield Finding("lost-file", path, None, message)


def key(answers: dict[str, Any], names: list[str]) -> tuple[tuple[str, Any], ...]:
    """The answers that two templates have in common."""
    return tuple((name, answers[name]) for name in names)


def paths(template: Template, answers: dict[str, Any]) -> set[str]:
    """Where the files of a template go with `answers`."""
    texts: dict[str, str] = {}
    found = (template.rendered(path, answers, texts) for path in template.files)
    return {path for path in found if path is not None}
