"""The template as data: settings, questions, files, and all allowed sets of answers."""

from collections import defaultdict
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
    _sets: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)
    _answers: dict[str, list[int]] = field(default_factory=dict, repr=False)

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
        sets = [dict(BUILT_IN)]
        for name, question in self.questions.items():
            used = sorted({it for text in texts(question) for it in self._compile(text)[1]})
            # A question uses few answers, so most results can be reused. The same object is the
            # same answer, because `sets` keeps all answers alive.
            known = dict[tuple[int, ...], list[Any]]()
            longer = list[dict[str, Any]]()
            for answers in sets:
                key = tuple([id(answers.get(it, ...)) for it in used])
                if key not in known:
                    known[key] = self.allowed(name, answers)
                copies = [{**answers, name: value} for value in known[key][1:]]
                for value in known[key][:1]:
                    answers[name] = value
                    longer.append(answers)
                longer += copies
            sets = longer
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
            compiled, names = self._compile(source)
            # A source uses few answers, so most results can be reused.
            key = (source, *(repr(answers.get(name, ...)) for name in names))
            if key not in self._rendered:
                self._rendered[key] = compiled.render(answers)
            return self._rendered[key]
        # A filter may raise anything.
        except Exception as error:
            values = {name: answers[name] for name in self.questions if name in answers}
            raise TemplateError(f"{source.strip()!r} fails: {error}, with {values}") from error

    def _compile(self, source: str) -> tuple[jinja2.Template, list[str]]:
        """Return a compiled source, and the names that it uses."""
        if source not in self._compiled:
            used = meta.find_undeclared_variables(self.jinja.parse(source))
            self._compiled[source] = self.jinja.from_string(source), sorted(used)
        return self._compiled[source]

    def source(self, path: PurePosixPath) -> str:
        """Return the text of the file `path` of template/."""
        return (self.root / FILES / path).read_text(encoding="utf-8", errors="replace")

    def top(self, answers: dict[str, Any]) -> PurePosixPath:
        """Return the folder that Copier renders with `answers`."""
        return PurePosixPath(self.text(self.settings["_subdirectory"], answers))

    @cached_property
    def targets(self) -> dict[PurePosixPath, dict[str, int]]:
        """Return the paths of each file in the renders, each with the combinations that have it.

        Bit n of such a set stands for `combinations[n]`.
        """
        folders = dict[tuple[str, ...], dict[str, int]]()
        targets = dict[PurePosixPath, dict[str, int]]()
        for path in self.files:
            places = self._below(self._places(path.parent.parts, folders), path.name)
            named = {place.removesuffix(SUFFIX): bits for place, bits in places.items()}
            targets[path] = {it: bits for it, bits in named.items() if it and it[-1] != "/"}
        return targets

    def _places(
        self, parts: tuple[str, ...], known: dict[tuple[str, ...], dict[str, int]]
    ) -> dict[str, int]:
        """Return the paths of a folder in the renders, each with a slash at the end."""
        if parts not in known:
            above = self._places(parts[:-1], known) if parts else {}
            known[parts] = self._below(above, parts[-1], "/") if above else {}
            # With some answers, it may be the folder that Copier renders.
            top = PurePosixPath(FILES, *parts).as_posix()
            if bits := self._texts(self.settings["_subdirectory"]).get(top, 0):
                known[parts][""] = known[parts].get("", 0) | bits
        return known[parts]

    def _below(self, places: dict[str, int], name: str, end: str = "") -> dict[str, int]:
        """Return the paths of a file or folder with this name in the folder of `places`."""
        found = dict[str, int]()
        for text, bits in self._texts(name).items() if places else ():
            for place, others in places.items():
                if text and bits & others:
                    path = place + f"{text}{end}".removeprefix("./")
                    found[path] = found.get(path, 0) | bits & others
        return found

    def _texts(self, source: str) -> dict[str, int]:
        """Return the texts of a source, each with its combinations."""
        if source not in self._sets:
            texts = dict[str, int]()
            _, names = self._compile(source)
            for bits in self._groups(tuple(names)):
                first = (bits & -bits).bit_length() - 1
                text = self.text(source, self.combinations[first])
                texts[text] = texts.get(text, 0) | bits
            self._sets[source] = texts
        return self._sets[source]

    def _values(self, name: str) -> list[int]:
        """Return the combinations in groups with the same answer to a question."""
        if name not in self._answers:
            groups = defaultdict[str, bytearray](lambda: bytearray(len(self.combinations) // 8 + 1))
            for at, answers in enumerate(self.combinations):
                groups[repr(answers.get(name, ...))][at // 8] |= 1 << at % 8
            self._answers[name] = [int.from_bytes(bits, "little") for bits in groups.values()]
        return self._answers[name]

    def _groups(self, names: tuple[str, ...]) -> list[int]:
        """Return the combinations in groups with the same answers to these questions."""
        groups = [(1 << len(self.combinations)) - 1]
        for name in names:
            groups = [both for one in groups for it in self._values(name) if (both := one & it)]
        return groups


def texts(value: object) -> Iterator[str]:
    """Yield every string in a value of copier.yml."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


@cache
def value_of(text: str) -> Any:
    """Return the YAML value of a text. It is cached: do not change it."""
    return yaml.safe_load(text)
