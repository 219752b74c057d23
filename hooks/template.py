"""The template as data: settings, questions, files, and every set of answers that they allow."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import yaml
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from hooks.rendering import ANSWERS_FILE, CACHES

QUESTIONS = "copier.yml"
FILES = "template"
SUFFIX = ".jinja"

# What Copier itself gives to every template, as it is for a project in a folder `my-agent`.
BUILT_IN: dict[str, Any] = {
    "_copier_answers": {},
    "_copier_conf": {"answers_file": ANSWERS_FILE, "dst_path": "my-agent", "sep": "/"},
    "_copier_operation": "copy",
    "_copier_phase": "render",
    "_copier_python": "python",
    "_folder_name": "my-agent",
}


class TemplateError(Exception):
    """The template cannot be read; the text is one line that says why."""


@dataclass
class Template:
    """One template. `lines` has where each key of copier.yml is: ("model",), ("model", "help")."""

    root: Path
    settings: dict[str, Any]
    questions: dict[str, Any]
    lines: dict[tuple[str, ...], int]
    repeated: list[tuple[str, ...]] = field(default_factory=list)
    _compiled: dict[str, jinja2.Template] = field(default_factory=dict, repr=False)

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
        default = self.default(name, answers)
        if not question.get("choices") or not self.true(question.get("when", True), answers):
            return [default]
        return [
            value
            for value, validator in self.choices(name, answers)
            if not self.text(validator, answers).strip()
        ]

    def default(self, name: str, answers: dict[str, Any]) -> Any:
        """What question `name` is answered with by --defaults after `answers`."""
        question = self.questions[name]
        default = question.get("default")
        if not isinstance(default, str):
            return default
        text = self.text(default, answers)
        return text if question.get("type", "str") in ("str", "path") else yaml.safe_load(text)

    def choices(self, name: str, answers: dict[str, Any]) -> Iterator[tuple[Any, str]]:
        """The choices of question `name`, each a value and the validator that may refuse it."""
        choices = self.questions[name]["choices"]
        if isinstance(choices, str):
            choices = yaml.safe_load(self.text(choices, answers))
        for choice in choices.values() if isinstance(choices, dict) else choices:
            value = choice[1] if isinstance(choice, list) else choice
            if isinstance(value, dict):
                if "value" not in value:
                    raise TemplateError(f"{QUESTIONS}: a choice of {name} has no value: {value}")
                yield value["value"], value.get("validator", "")
            else:
                yield value, ""

    def text(self, source: str, answers: dict[str, Any]) -> str:
        """Render one string of copier.yml or one part of a file's name.

        Raises TemplateError when that fails with these answers.
        """
        try:
            if source not in self._compiled:
                self._compiled[source] = self.jinja.from_string(source)
            return self._compiled[source].render(answers)
        # A filter may raise anything.
        except Exception as error:
            given = {name: answers[name] for name in self.questions if name in answers}
            raise TemplateError(f"{source.strip()!r} fails: {error}, with {given}") from error

    def true(self, when: object, answers: dict[str, Any]) -> bool:
        """Whether a `when` holds after `answers`."""
        return bool(yaml.safe_load(self.text(when, answers)) if isinstance(when, str) else when)

    def rendered(
        self, path: PurePosixPath, answers: dict[str, Any], texts: dict[str, str]
    ) -> str | None:
        """Where the file `path` of template/ goes with `answers`; None when it is left out.

        `texts` keeps what parts of names render to with these answers.
        """
        root = self.settings["_subdirectory"]
        for part in (root, *path.parts):
            if part not in texts:
                texts[part] = self.text(part, answers)
        top, place = PurePosixPath(texts[root]), f"{FILES}/{path}"
        start = f"{top}/" if top.parts else ""
        if not place.startswith(start):
            return None
        parts = [texts[part] for part in place.removeprefix(start).split("/")]
        parts[-1] = parts[-1].removesuffix(SUFFIX)
        return "/".join(part for part in parts if part != ".") if all(parts) else None
