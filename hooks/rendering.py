"""Render the template as it stands in the working tree, uncommitted edits included."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from unittest.mock import patch

from copier import Settings, run_copy
from jinja2 import Environment
from packaging.version import Version
from plumbum import local

ANSWERS_FILE = ".copier-answers.yml"

# What working on a project leaves in it, and what its first install writes: neither is rendered.
CACHES = (".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__")
LOCKS = ("package-lock.json", "uv.lock")
LEFTOVERS = frozenset({*CACHES, *LOCKS, "node_modules"})

# Copier asks git about every file that it writes: in vain, and for a quarter of the time. Older
# ones fail where there is none.
WITHOUT_GIT = {"PATH": ""} if Version(version("copier")) >= Version("9.16") else {}


# Copier compiles the names of all files for each render anew: half of the time of a render.
COMPILED: dict[tuple[object, ...], CodeType] = {}
COMPILE = Environment.compile


def compile_once(
    self: Environment, source: str, name: str | None = None, filename: str | None = None
) -> CodeType:
    """What Environment.compile returns; for a text that it had before, what it returned then."""
    # Jinja has one lexer for all environments with equal settings.
    key = (source, name, filename, self.lexer, *self.extensions)
    if key not in COMPILED:
        COMPILED[key] = COMPILE(self, source, name, filename)
    return COMPILED[key]


class RenderError(Exception):
    """Copier did not render the template; the text is one line that says why."""


@contextmanager
def without_git(root: Path) -> Iterator[Path]:
    """Yield a copy of the questions and the template of `root`, gone afterwards.

    Copier renders the last tag of a template in git, and a plain folder as it is: of such a one
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

    The answers file says nothing about where the template came from, so it is the same anywhere.
    Raises RenderError when Copier refuses the template or an answer, OSError when `dest` does not
    take the files.
    """
    compiling = patch.object(Environment, "compile", compile_once)
    with without_git(root) as template, local.env(**WITHOUT_GIT), compiling:
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
        except OSError:
            raise
        # Copier lets the errors of Jinja, YAML, pydantic and others through as they are.
        except Exception as error:
            raise RenderError(one_line(error)) from error
    recorded = dest / ANSWERS_FILE
    if recorded.exists():
        text = recorded.read_text(encoding="utf-8")
        # A long value goes on in indented lines.
        text = re.sub(r"(?m)^_(src_path|commit):.*\n( .*\n)*", "", text)
        recorded.write_text(text, encoding="utf-8", newline="")


def one_line(error: Exception) -> str:
    """The text of `error` on one line, with its type in front where the text alone says little."""
    text = " ".join(str(error).split())
    return text if len(text.split()) > 3 else f"{type(error).__name__}: {text}"


def files_of(folder: Path) -> Iterator[Path]:
    """Every file under `folder`, sorted, relative to it, without what a run leaves behind."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not LEFTOVERS.intersection(relative.parts) and (path.is_symlink() or path.is_file()):
            yield relative
