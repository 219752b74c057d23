"""Render the template as it stands in the working tree, uncommitted edits included."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from copier import Settings, run_copy
from copier._main import Worker
from jinja2 import Environment, TemplateNotFound

ANSWERS_FILE = ".copier-answers.yml"

# What working on a project leaves in it, and what its first install writes: neither is rendered.
CACHES = (".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__")
LOCKS = ("package-lock.json", "uv.lock")
LEFTOVERS = frozenset({*CACHES, *LOCKS, "node_modules"})


class RenderError(Exception):
    """Copier did not render the template; the text is one line that says why."""


COMPILED: dict[tuple[object, ...], Any] = {}
_compile = Environment.compile


@contextmanager
def quick_copier() -> Iterator[None]:
    """Render several times in a third of the time.

    Copier compiles each part of each path anew; what becomes of a text depends on the syntax and
    the extensions of its environment only. And it asks Git for core.fileMode after each file, of
    which a render outside Git has no use.
    """

    def compile(self: Environment, source: Any, *names: Any, **options: Any) -> Any:
        kind = (type(self), self.lexer, *self.extensions)
        key = (*kind, str(source), *names, *sorted(options.items()))
        if key not in COMPILED:
            COMPILED[key] = _compile(self, source, *names, **options)
        return COMPILED[key]

    with (
        patch.object(Environment, "compile", compile),
        patch.object(Worker, "_sync_git_index_executable_bit", lambda *_: None),
    ):
        yield


@contextmanager
def without_git(root: Path) -> Iterator[Path]:
    """Yield a copy of the questions and the template of `root`, gone afterwards.

    Copier renders the last tag of a template in Git, and a plain folder as it is: of such a folder
    no copy is needed.
    """
    if not (root / ".git").exists():
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="template-") as folder:
        copy = Path(folder) / "template"
        copy.mkdir()
        shutil.copy2(root / "copier.yml", copy)
        caches = shutil.ignore_patterns(*CACHES, "node_modules")
        shutil.copytree(root / "template", copy / "template", symlinks=True, ignore=caches)
        yield copy


def render(root: Path, answers: Mapping[str, object], dest: Path) -> None:
    """Render the template of `root` with `answers`, and defaults for the rest, into `dest`.

    The answers file does not say where the template came from, so it is the same anywhere.
    Raises RenderError when Copier refuses the template or an answer, OSError when `dest` does not
    take the files.
    """
    with without_git(root) as template, quick_copier():
        try:
            run_copy(
                str(template),
                dest,
                data=dict(answers),
                defaults=True,
                overwrite=True,
                quiet=True,
                # Not the user's own: its defaults would win over the template's.
                settings=Settings(),
            )
        # Copier lets the errors of Jinja, YAML, pydantic and others through as they are.
        except Exception as error:
            # A file that is included and missing is an OSError too.
            if isinstance(error, OSError) and not isinstance(error, TemplateNotFound):
                raise
            text = " ".join(str(error).split())
            raise RenderError(f"{type(error).__name__}: {text}") from error
    recorded = dest / ANSWERS_FILE
    if recorded.exists():
        text = recorded.read_text(encoding="utf-8")
        # A long value continues in indented lines.
        text = re.sub(r"(?m)^_(src_path|commit):.*\n( .*\n)*", "", text)
        recorded.write_text(text, encoding="utf-8", newline="")


def files_of(folder: Path) -> Iterator[Path]:
    """Every file under `folder`, sorted, relative to it, without what a run leaves behind."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not LEFTOVERS.intersection(relative.parts) and (path.is_symlink() or path.is_file()):
            yield relative
