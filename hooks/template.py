"""The template as data: settings, questions, files, and all allowed sets of answers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import yaml
from jinja2 import StrictUndefined, meta
from jinja2.sandbox import SandboxedEnvironment

from hooks.rendering import ANSWERS_FILE, CACHES

QUESTIONS = "copier.yml"
FILES = "template"
SUFFIX = ".jinja"

# Copier's own variables, with their values for a project in a folder `my-agent`.
BUILT_IN: dict[str, Any] = {
    "_copier_answers": {},
    "_copier_conf": {
        "answers_file": ANSWERS_FILE,
        "data": {},
        "dst_path": "my-agent",
        "overwrite": False,
        "sep": "/",
    },
    "_copier_operation": "copy",
    "_copier_phase": "render",
    "_copier_python": "python",
    "_external_data": {},
    "_folder_name": "my-agent",
}


class TemplateError(Exception):
    """The template cannot be read. The text is one line with the reason."""


@dataclass(frozen=True, order=True)
class Finding:
    """A mistake in the template: a stable id, its place, and the remedy."""

    id: str
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """Return the line of the report."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.id} {place} {self.message}"


@dataclass
class Template:
    """A template: the content of copier.yml, and the files of template/."""

    root: Path
    settings: dict[str, Any]
    questions: dict[str, dict[str, Any]]
    _compiled: dict[str, tuple[jinja2.Template, list[str]]] = field(
        default_factory=dict, repr=False
    )
    _rendered: dict[tuple[str, ...], str] = field(default_factory=dict, repr=False)

    @cached_property
    def jinja(self) -> SandboxedEnvironment:
        """Return Jinja with Copier's options for this template."""
        options = {**(self.settings.get("_envops") or {}), "undefined": StrictUndefined}
        filters = "jinja2_ansible_filters.AnsibleCoreFiltersExtension"
        return SandboxedEnvironment(extensions=[filters], **options)

    @cached_property
    def files(self) -> list[PurePosixPath]:
        """Return the files of template/, sorted, relative to it, without caches."""
        folder = self.root / FILES
        paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
        kept = (path for path in paths if not set(CACHES).intersection(path.parts))
        return sorted(PurePosixPath(path.as_posix()) for path in kept)

    @cached_property
    def asked(self) -> list[str]:
        """Return the questions whose answers a project records."""
        return [name for name, q in self.questions.items() if q.get("when") is not False]

    @cached_property
    def combinations(self) -> list[dict[str, Any]]:
        """Return all allowed sets of answers, with derived answers and BUILT_IN."""
        sets = [BUILT_IN]
        for name in self.questions:
            sets = [
                {**answers, name: value}
                for answers in sets
                for value in self.allowed(name, answers)
            ]
        return sets

    def allowed(self, name: str, answers: dict[str, Any]) -> list[Any]:
        """Return the allowed values of question `name` after `answers`: its choices or default."""
        question = self.questions[name]
        when = question.get("when", True)
        is_asked = value_of(self.text(when, answers)) if isinstance(when, str) else when
        if not question.get("choices") or not is_asked:
            return [self.default(name, answers)]
        values = [
            value
            for value, validator in self.choices(name, answers)
            if not self.text(validator, answers).strip()
        ]
        # A multiselect has too many subsets: none, each alone, and all stand for them.
        subsets = [[], *([value] for value in values), values]
        return subsets if question.get("multiselect") else values

    def default(self, name: str, answers: dict[str, Any]) -> Any:
        """Return the answer of --defaults to question `name` after `answers`."""
        question = self.questions[name]
        default = question.get("default")
        if not isinstance(default, str):
            return default
        text = self.text(default, answers)
        return text if question.get("type", "yaml") in ("str", "path") else value_of(text)

    def choices(self, name: str, answers: dict[str, Any]) -> Iterator[tuple[Any, str]]:
        """Yield the choices of question `name`: each a value and its validator."""
        choices = self.questions[name].get("choices") or []
        if isinstance(choices, str):
            choices = yaml.safe_load(self.text(choices, answers))
        for choice in choices.values() if isinstance(choices, dict) else choices:
            value = choice[1] if isinstance(choice, list) else choice
            if isinstance(value, dict):
                yield value.get("value"), value.get("validator", "")
            else:
                yield value, ""

    def text(self, source: str, answers: dict[str, Any]) -> str:
        """Render a string of copier.yml or a part of a path.

        Raises TemplateError if that fails with these answers.
        """
        try:
            if source not in self._compiled:
                used = meta.find_undeclared_variables(self.jinja.parse(source))
                self._compiled[source] = self.jinja.from_string(source), sorted(used)
            compiled, names = self._compiled[source]
            # A source uses few answers, so most results can be reused.
            key = (source, *(repr(answers.get(name, ...)) for name in names))
            if key not in self._rendered:
                self._rendered[key] = compiled.render(answers)
            return self._rendered[key]
        # A filter may raise anything.
        except Exception as error:
            values = {name: answers[name] for name in self.questions if name in answers}
            raise TemplateError(f"{source.strip()!r} fails: {error}, with {values}") from error

    def source(self, path: PurePosixPath) -> str:
        """Return the text of the file `path` of template/."""
        return (self.root / FILES / path).read_text(encoding="utf-8", errors="replace")

    def top(self, answers: dict[str, Any]) -> PurePosixPath:
        """Return the folder that Copier renders with `answers`."""
        return PurePosixPath(self.text(self.settings["_subdirectory"], answers))

    @cached_property
    def folders(self) -> dict[tuple[str, ...], list[PurePosixPath]]:
        """Return the files by the parts of their folder."""
        folders: dict[tuple[str, ...], list[PurePosixPath]] = {}
        for path in self.files:
            folders.setdefault((FILES, *path.parent.parts), []).append(path)
        return folders

    def targets(self, answers: dict[str, Any]) -> dict[PurePosixPath, str]:
        """Return the path in the render of each file that is rendered with `answers`."""
        top = self.top(answers).parts
        targets = dict[PurePosixPath, str]()
        texts = dict[str, str]()
        for parts, paths in self.folders.items():
            if parts[: len(top)] != top:
                continue
            place = ""
            for name in parts[len(top) :]:
                if name not in texts:
                    texts[name] = self.text(name, answers)
                if not texts[name]:
                    break
                place += f"{texts[name]}/".removeprefix("./")
            else:
                for path in paths:
                    if path.name not in texts:
                        texts[path.name] = self.text(path.name, answers)
                    if name := texts[path.name].removesuffix(SUFFIX):
                        targets[path] = place + name
        return targets


@cache
def value_of(text: str) -> Any:
    """Return the YAML value of a text. It is cached: do not change it."""
    return yaml.safe_load(text)
