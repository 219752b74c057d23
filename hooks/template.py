"""The template as data: settings, questions, files, and every set of answers that they allow."""

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

# What Copier itself gives to every template, as it is for a project in a folder `my-agent`.
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
    """The template cannot be read; the text is one line that says why."""


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake in the template: a stable id, where it is, and what to do about it."""

    id: str
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """The line that is shown."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.id} {place} {self.message}"


@dataclass
class Template:
    """One template: what copier.yml says, and the files of template/."""

    root: Path
    settings: dict[str, Any]
    questions: dict[str, dict[str, Any]]
    _compiled: dict[str, tuple[jinja2.Template, list[str]]] = field(
        default_factory=dict, repr=False
    )
    _rendered: dict[tuple[str, ...], str] = field(default_factory=dict, repr=False)

    @cached_property
    def jinja(self) -> SandboxedEnvironment:
        """Jinja as Copier sets it up for this template."""
        options = {**(self.settings.get("_envops") or {}), "undefined": StrictUndefined}
        filters = "jinja2_ansible_filters.AnsibleCoreFiltersExtension"
        return SandboxedEnvironment(extensions=[filters], **options)

    @cached_property
    def files(self) -> list[PurePosixPath]:
        """The files of template/, sorted, relative to it, without caches."""
        folder = self.root / FILES
        paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
        kept = (path for path in paths if not set(CACHES).intersection(path.parts))
        return sorted(PurePosixPath(path.as_posix()) for path in kept)

    @cached_property
    def asked(self) -> list[str]:
        """The questions whose answers a project records."""
        return [name for name, q in self.questions.items() if q.get("when") is not False]

    @cached_property
    def combinations(self) -> list[dict[str, Any]]:
        """Every set of answers that the choices allow, derived answers and built-ins included."""
        found = [BUILT_IN]
        for name in self.questions:
            found = [
                {**answers, name: value}
                for answers in found
                for value in self.allowed(name, answers)
            ]
        return found

    def allowed(self, name: str, answers: dict[str, Any]) -> list[Any]:
        """The values that question `name` may have after `answers`: its choices, or its default."""
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
        # Of several choices at once: none, each alone, and all.
        several = [[], *([value] for value in values), values]
        return several if question.get("multiselect") else values

    def default(self, name: str, answers: dict[str, Any]) -> Any:
        """The answer that --defaults gives to question `name` after `answers`."""
        question = self.questions[name]
        default = question.get("default")
        if not isinstance(default, str):
            return default
        text = self.text(default, answers)
        return text if question.get("type", "yaml") in ("str", "path") else value_of(text)

    def choices(self, name: str, answers: dict[str, Any]) -> Iterator[tuple[Any, str]]:
        """The choices of question `name`, each a value and the validator that may refuse it."""
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
        """Render one string of copier.yml or one part of a file's name.

        Raises TemplateError when that fails with these answers.
        """
        try:
            if source not in self._compiled:
                used = meta.find_undeclared_variables(self.jinja.parse(source))
                self._compiled[source] = self.jinja.from_string(source), sorted(used)
            compiled, names = self._compiled[source]
            # Few answers matter to a source.
            key = (source, *(repr(answers.get(name, ...)) for name in names))
            if key not in self._rendered:
                self._rendered[key] = compiled.render(answers)
            return self._rendered[key]
        # A filter may raise anything.
        except Exception as error:
            given = {name: answers[name] for name in self.questions if name in answers}
            raise TemplateError(f"{source.strip()!r} fails: {error}, with {given}") from error

    def source(self, path: PurePosixPath) -> str:
        """The text of the file `path` of template/."""
        return (self.root / FILES / path).read_text(encoding="utf-8", errors="replace")

    def top(self, answers: dict[str, Any]) -> PurePosixPath:
        """The folder that is rendered with `answers`."""
        return PurePosixPath(self.text(self.settings["_subdirectory"], answers))

    @cached_property
    def folders(self) -> dict[tuple[str, ...], list[PurePosixPath]]:
        """The files by the parts of the folder in which they are."""
        found: dict[tuple[str, ...], list[PurePosixPath]] = {}
        for path in self.files:
            found.setdefault((FILES, *path.parent.parts), []).append(path)
        return found

    def targets(self, answers: dict[str, Any]) -> dict[PurePosixPath, str]:
        """Where each file of template/ goes that is rendered with `answers`."""
        top, found, texts = self.top(answers).parts, dict[PurePosixPath, str](), dict[str, str]()
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
                        found[path] = place + name
        return found


@cache
def value_of(text: str) -> Any:
    """What a text is as YAML. Few texts are asked for often: read only, and kept."""
    return yaml.safe_load(text)
