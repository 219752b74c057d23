"""Render the template of the working tree, with uncommitted edits."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

from copier import Settings, run_copy
from copier import _main as copier_main
from copier import _template as copier_template
from copier import _vcs as copier_vcs
from copier._main import Worker
from copier._user_data import DEFAULT_DATA, AnswersMap
from jinja2 import Environment, TemplateError, TemplateNotFound

ANSWERS_FILE = ".copier-answers.yml"

# Files that tools and the first install add to a project. They are not part of a render.
CACHES = (".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__")
LOCKS = ("package-lock.json", "uv.lock")
LEFTOVERS = frozenset({*CACHES, *LOCKS, "node_modules"})


class RenderError(Exception):
    """Copier did not render the template. The text is one line with the reason."""


COMPILED: dict[tuple[object, ...], Any] = {}
CONFIGS: dict[bytes, dict[str, Any]] = {}
_compile = Environment.compile
_get_repo = copier_vcs.get_repo
_load_config = copier_template.load_template_config
_render_template = Worker._render_template


@contextmanager
def quick_copier() -> Iterator[None]:
    """Make repeated renders take a tenth of the time.

    Copier compiles each part of each path again. The result depends only on the text, and on the
    syntax and extensions of its environment, so it is cached, and so is the content of copier.yml,
    which includes no other file. For each text, Copier merges all answers, and slowly. It renders
    the path of each file below a folder whose name is empty, and the name of the answers file for
    each part of a path. It also asks Git whether the template is a repository or a bundle, and for
    core.fileMode after each file, which a render of a plain folder outside Git does not need.
    """

    def compile(self: Environment, source: Any, *names: Any, **options: Any) -> Any:
        kind = (type(self), self.lexer, *self.extensions)
        key = (*kind, str(source), *names, *sorted(options.items()))
        if key not in COMPILED:
            COMPILED[key] = _compile(self, source, *names, **options)
        return COMPILED[key]

    def find_repository(url: str) -> str | None:
        is_plain = (Path(url) / "copier.yml").exists() and not (Path(url) / ".git").exists()
        return None if is_plain else _get_repo(url)

    def load_config(path: Path, quiet: bool = False) -> dict[str, Any]:
        key = path.read_bytes()
        if key not in CONFIGS:
            CONFIGS[key] = _load_config(path, quiet)
        return deepcopy(CONFIGS[key])

    def combined(self: AnswersMap) -> Mapping[str, Any]:
        return {
            **DEFAULT_DATA,
            "_external_data": self.external,
            **self.user_defaults,
            **self.last,
            **self.metadata,
            **self.init,
            **self.user,
        }

    def render_template(self: Worker) -> None:
        answers_file = self.answers_relpath

        def scantree(folder: str, follow_symlinks: bool) -> Iterator[os.DirEntry[str]]:
            for entry in os.scandir(folder):
                if not entry.is_dir(follow_symlinks=follow_symlinks):
                    yield entry
                elif is_named(self, entry.name):
                    yield entry
                    yield from scantree(entry.path, follow_symlinks)

        with (
            patch.object(copier_main, "scantree", scantree),
            patch.object(Worker, "answers_relpath", answers_file),
        ):
            _render_template(self)

    with (
        patch.object(copier_template, "get_repo", find_repository),
        patch.object(copier_template, "load_template_config", load_config),
        patch.object(AnswersMap, "combined", property(combined)),
        patch.object(Environment, "compile", compile),
        patch.object(Worker, "_sync_git_index_executable_bit", lambda *_: None),
        patch.object(Worker, "_render_template", render_template),
    ):
        yield


def is_named(worker: Worker, name: str) -> bool:
    """Return whether the name of a folder is not empty in this render.

    Copier itself reports a name that does not render.
    """
    try:
        return worker._render_string(name) != ""
    except TemplateError:
        return True


@contextmanager
def without_git(root: Path) -> Iterator[Path]:
    """Yield a temporary copy of the questions and the template of `root`.

    Copier renders the last tag of a template in Git, but the current files of a plain folder. A
    plain folder needs no copy.
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
    """Render the template of `root` with `answers`, and defaults for the others, into `dest`.

    The answers file does not name the source of the template, so it is identical on every machine.
    Raises RenderError if Copier refuses the template or an answer, OSError if `dest` cannot be
    written.
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
                # Without the user's settings, whose defaults would override the template's.
                settings=Settings(),
            )
        # Copier passes on errors of Jinja, YAML, pydantic and others.
        except Exception as error:
            # The error for a missing included file is also an OSError.
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
    """Yield the files of `folder`, sorted, relative to it, without LEFTOVERS."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not LEFTOVERS.intersection(relative.parts) and (path.is_symlink() or path.is_file()):
            yield relative
