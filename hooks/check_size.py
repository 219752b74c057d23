"""The size budget: a project that its owner can read in one sitting."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from hooks.findings import Finding
from hooks.rendering import ANSWERS_FILE, RenderError, files_of, render, without_git
from hooks.template import Template
from hooks.variants import VARIANTS, answers_of, base_of

PROJECT_FILES = 24  # besides the answers file, which is Copier's
# A Python render has about 1,340 lines, a TypeScript one 1,515: room for a repair, no more.
PROJECT_LINES = {"python": 1360, "typescript": 1540}
MODULE_LINES = 150
COLUMNS = 100
MODULES = {".py", ".ts"}


def check_size(template: Template) -> Iterator[Finding]:
    """Every variant renders and is within the budget; an option is looked at file by file only."""
    seen = set()
    with without_git(template.root) as root, tempfile.TemporaryDirectory() as folder:
        for variant in VARIANTS:
            project = Path(folder) / variant
            try:
                render(root, answers_of(variant), project)
            except RenderError as error:
                yield Finding("render-failed", variant, None, str(error))
                continue
            for finding in check_project(variant, project):
                # What an option leaves as it is was reported for its base.
                if (found := (finding.id, finding.file, finding.line)) not in seen:
                    seen.add(found)
                    yield finding


def check_project(variant: str, project: Path) -> Iterator[Finding]:
    """Compare one rendered project with the budget. `file` is the path in the project."""
    texts = {path: text_of(project / path) for path in files_of(project)}
    total = sum(map(len, texts.values()))
    files = len(texts.keys() - {Path(ANSWERS_FILE)})
    if base_of(variant) is None and files > PROJECT_FILES:
        message = f"has {files} files, {PROJECT_FILES} are allowed: merge or drop some"
        yield Finding("size-files", variant, None, message)
    allowed = PROJECT_LINES[variant.split("+")[0].rpartition("-")[2]]
    if base_of(variant) is None and total > allowed:
        message = f"has {total} lines, {allowed} are allowed: make something simpler"
        yield Finding("size-lines", variant, None, message)
    for path, lines in texts.items():
        if path.suffix in MODULES and len(lines) > MODULE_LINES:
            message = (
                f"has {len(lines)} lines, {MODULE_LINES} are allowed: split it by what it does"
            )
            yield Finding("size-module", path.as_posix(), None, f"{message} ({variant})")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                message = f"has {len(line)} columns, {COLUMNS} are allowed: break it ({variant})"
                yield Finding("size-columns", path.as_posix(), number, message)


def text_of(path: Path) -> list[str]:
    """The lines of a file; a file that is not text has none."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
