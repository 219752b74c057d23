"""Checks of the files of template/: names that work everywhere, and one file for one path."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from hooks.findings import Finding
from hooks.rendering import ANSWERS_FILE, LOCKS
from hooks.template import FILES, SUFFIX, Template

ANSWERS_TEMPLATE = "{{ _copier_conf.answers_file }}.jinja"
FORBIDDEN = re.compile(r'["|:*?<>\\\x00-\x1f]')
DEVICES = {"aux", "con", "nul", "prn"} | {
    f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10)
}


def check_names(template: Template) -> Iterator[Finding]:
    """A clone on Windows or macOS can hold every file, and no lock file is rendered."""
    seen: dict[str, PurePosixPath] = {}
    parts = {
        PurePosixPath(*path.parts[:length]): None
        for path in template.files
        for length in range(1, len(path.parts) + 1)
    }
    for path in parts:
        place, name = f"{FILES}/{path}", path.name
        rendered = name.removesuffix(SUFFIX)
        if match := FORBIDDEN.search(name):
            yield Finding("name-character", place, None, f"has {match[0]!r} in its name: rename it")
        if name.endswith((".", " ")) or rendered.endswith((".", " ")):
            yield Finding("name-ending", place, None, "ends in a dot or a space: rename it")
        if rendered.partition(".")[0].lower() in DEVICES:
            yield Finding("name-device", place, None, "is a device's name on Windows: rename it")
        if rendered in LOCKS:
            message = "is written by the owner's first install: delete it here"
            yield Finding("lock-file", place, None, message)
        other = seen.setdefault(str(path).lower(), path)
        if other != path:
            message = f"differs from {FILES}/{other} only in case: rename one of them"
            yield Finding("name-case", place, None, message)


def check_answers_file(template: Template) -> Iterator[Finding]:
    """The answers are recorded: without that file no project can ever be updated."""
    missing: dict[str, None] = {}
    for answers in template.combinations:
        root = PurePosixPath(template.text(template.settings["_subdirectory"], answers))
        # Copier wants it right there, and in no folder below.
        right_there = (path for path in template.files if FILES / path.parent == root)
        if ANSWERS_FILE not in {template.rendered(path, answers, {}) for path in right_there}:
            missing[f"{root}/{ANSWERS_TEMPLATE}"] = None
    for place in missing:
        message = (
            "is missing, so no project could be updated: it holds _copier_answers | to_nice_yaml"
        )
        yield Finding("answers-file", place, None, message)


def check_layers(template: Template) -> Iterator[Finding]:
    """With no set of answers do two files go to one path, and each file goes somewhere with one."""
    rendered = set()
    clashes: dict[tuple[PurePosixPath, PurePosixPath], str] = {}
    for answers in template.combinations:
        sources: dict[str, list[PurePosixPath]] = defaultdict(list)
        texts: dict[str, str] = {}
        for path in template.files:
            if (target := template.rendered(path, answers, texts)) is not None:
                rendered.add(path)
                sources[target.lower()].append(path)
        for target, paths in sources.items():
            for other in paths[1:]:
                clashes.setdefault((other, paths[0]), target)
    for (path, first), target in sorted(clashes.items()):
        message = (
            f"goes to {target}, as {FILES}/{first} does: make their answers exclude each other"
        )
        yield Finding("layer-overlap", f"{FILES}/{path}", None, message)
    for path in template.files:
        if path not in rendered:
            message = "is rendered with no answers at all: mend its folder's name, or delete it"
            yield Finding("never-rendered", f"{FILES}/{path}", None, message)
