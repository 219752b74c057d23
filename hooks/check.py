"""The checks of `python -m hooks check`: mistakes that Copier does not report."""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import TemplateSyntaxError, meta, nodes

from hooks.check_history import check_history, past
from hooks.loading import load
from hooks.rendering import RenderError, files_of, render, without_git
from hooks.template import BUILT_IN, FILES, QUESTIONS, SUFFIX, Finding, Template, texts
from hooks.variants import VARIANTS, answers_of
from hooks.workers import started

SETTINGS = {
    "_envops",
    "_exclude",
    "_external_data",
    "_message_after_copy",
    "_message_after_update",
    "_min_copier_version",
    "_subdirectory",
}
KEYS = {"choices", "default", "help", "multiselect", "placeholder", "type", "validator", "when"}
COLUMNS = 100
NEEDS_TRUST = "makes Copier refuse without --trust: describe the step in a message or the README"
NOT_RECORDED = "is not recorded, so each update takes the default: read it at run time"
UNSAFE = {
    "_jinja_extensions": NEEDS_TRUST,
    "_migrations": NEEDS_TRUST,
    "_secret_questions": NOT_RECORDED,
    "_skip_if_exists": "blocks fixes and restores files that users deleted: keep files small",
    "_tasks": NEEDS_TRUST,
    "secret": NOT_RECORDED,
}
ANSWERS_TEMPLATE = "{{ _copier_conf.answers_file }}.jinja"

Check = Callable[[Template], Iterator[Finding]]


def check(root: Path, against: str | None = None) -> list[Finding]:
    """Return the mistakes in the template of `root`.

    `against` is an earlier commit: an update of its projects must lose nothing. Raises
    TemplateError if copier.yml cannot be read, CommitError if Git does not have the commit.
    """
    template = load(root)

    def history(template: Template) -> Iterator[Finding]:
        if against is not None:
            with past(root, against) as old:
                yield from check_history(old, template)

    # A stage runs only after a clean stage: its findings would follow from the earlier findings.
    stages: list[list[Check]] = [
        [check_keys, check_jinja, check_names],
        [check_defaults, check_answers_file, check_layers, history],
    ]
    # The renders, which take longest, start before the first stage.
    with rendering(root) as renders:
        for stage in stages:
            if findings := [finding for rule in stage for finding in rule(template)]:
                return list(dict.fromkeys(findings))
        return list(dict.fromkeys(finding for found in renders for finding in found))


def check_keys(template: Template) -> Iterator[Finding]:
    """Report settings and keys of questions that are unknown to Copier or need trust."""
    keys = [(name, name, SETTINGS) for name in template.settings]
    keys += [(f"{name}.{key}", key, KEYS) for name, q in template.questions.items() for key in q]
    for place, key, allowed in keys:
        if key in UNSAFE:
            yield Finding("unsafe-feature", QUESTIONS, None, f"{place} {UNSAFE[key]}")
        elif key not in allowed:
            message = f"{place} is unknown: use one of {', '.join(sorted(allowed))}"
            yield Finding("unknown-key", QUESTIONS, None, message)


def check_jinja(template: Template) -> Iterator[Finding]:
    """Report names in Jinja that no question defines. A question may use only earlier questions."""
    known = set(BUILT_IN)
    for name, question in template.questions.items():
        for key, value in question.items():
            own = {name} if key == "validator" else set()
            for text in texts(value):
                yield from undefined(template, text, known | own, QUESTIONS, f"{name}.{key} ")
        known.add(name)
    for name, value in template.settings.items():
        for text in texts(value):
            yield from undefined(template, text, known, QUESTIONS, f"{name} ")
    for path in template.files:
        for part in path.parts:
            yield from undefined(template, part, known, f"{FILES}/{path}", "its name ")
        if path.suffix == SUFFIX:
            yield from undefined(template, template.source(path), known, f"{FILES}/{path}")


def undefined(
    template: Template, text: str, known: set[str], place: str, part: str = ""
) -> Iterator[Finding]:
    """Report names in a Jinja text that are not in `known`.

    `part` names the text if it is not a whole file.
    """
    try:
        tree = template.jinja.parse(text)
        used = meta.find_undeclared_variables(tree)
    except TemplateSyntaxError as error:
        line = None if part else error.lineno
        yield Finding("jinja-syntax", place, line, f"{part}does not compile: {error.message}")
        return
    lines = {node.name: node.lineno for node in reversed(list(tree.find_all(nodes.Name)))}
    # A renamed question keeps its old answer by `{{ old if old is defined else 'new' }}`.
    tests = (test.node for test in tree.find_all(nodes.Test) if test.name == "defined")
    optional = {node.name for node in tests if isinstance(node, nodes.Name)}
    optional.update(template.jinja.globals)
    for name in sorted(used - known - optional):
        message = f"{part}uses {name}, which no earlier question defines: correct the name"
        yield Finding("undefined-name", place, None if part else lines.get(name), message)


def check_names(template: Template) -> Iterator[Finding]:
    """Report files that Windows cannot store."""
    for path in template.files:
        for part in path.parts:
            if re.search(r'["|:*?<>\\\x00-\x1f]|[. ](\.jinja)?$', part):
                message = "has a name that Windows cannot store: rename it"
                yield Finding("name", f"{FILES}/{path}", None, message)


def check_defaults(template: Template) -> Iterator[Finding]:
    """Report defaults that their own question refuses after some answers, and missing defaults.

    With such a default, Copier shows a traceback instead of the question. Without a default, an
    update fails.
    """
    for at, name in enumerate(template.asked):
        if template.questions[name].get("default") is None:
            message = f"{name} has no default: add a default that leaves projects unchanged"
            yield Finding("missing-default", QUESTIONS, None, message)
            continue
        refusals = {}
        before = {
            repr([answers[earlier] for earlier in template.asked[:at]]): answers
            for answers in template.combinations
        }
        for answers in before.values():
            default = template.default(name, answers)
            if reason := refusal(template, name, default, answers):
                refusals[repr(default)] = reason
        for default, reason in refusals.items():
            message = f"{name}.default {default} is refused by its own question: {reason}"
            yield Finding("refused-default", QUESTIONS, None, message)


def refusal(template: Template, name: str, value: Any, answers: dict[str, Any]) -> str:
    """Return why question `name` refuses `value` after `answers`, or an empty text."""
    question = template.questions[name]
    if question.get("choices") and value not in template.allowed(name, answers):
        return "it is not among the choices"
    return template.text(question.get("validator", ""), {**answers, name: value}).strip()


def check_answers_file(template: Template) -> Iterator[Finding]:
    """Report a missing template of the answers file, without which no project can be updated."""
    for top in sorted({template.top(answers) for answers in template.combinations}):
        # Copier reads it only in this folder.
        if not (template.root / top / ANSWERS_TEMPLATE).is_file():
            message = "is missing, so no project could be updated: add it with _copier_answers"
            yield Finding("answers-file", f"{top}/{ANSWERS_TEMPLATE}", None, message)


def check_layers(template: Template) -> Iterator[Finding]:
    """Report two files with the same path in a render, and files that no render uses."""
    used = {path for path, places in template.targets.items() if places}
    at = dict[str, list[tuple[PurePosixPath, str, int]]]()
    for path, places in template.targets.items():
        for target, answers in places.items():
            # On Windows and macOS, paths that differ only in case are the same file.
            at.setdefault(target.lower(), []).append((path, target, answers))
    clashes = dict[tuple[PurePosixPath, PurePosixPath], str]()
    for files in at.values():
        for (other, _, others), (path, target, answers) in combinations(files, 2):
            if path != other and answers & others:
                clashes.setdefault((path, other), target)
    for (path, other), target in clashes.items():
        message = f"goes to {target}, like {FILES}/{other}: make their answers exclude each other"
        yield Finding("layer-overlap", f"{FILES}/{path}", None, message)
    queue = list(used)
    while queue:
        new = set(includes(template, queue.pop())) - used
        used |= new
        queue += new
    for path in template.files:
        if path not in used:
            message = "is neither rendered nor included: correct its folder's name, or delete it"
            yield Finding("never-rendered", f"{FILES}/{path}", None, message)


def includes(template: Template, path: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the files of template/ that the file `path` includes or imports."""
    if path in template.files and path.suffix == SUFFIX:
        tree = template.jinja.parse(template.source(path))
        for other in meta.find_referenced_templates(tree):
            if other is not None and other.startswith(f"{FILES}/"):
                yield PurePosixPath(other).relative_to(FILES)


@contextmanager
def rendering(root: Path) -> Iterator[Iterator[list[Finding]]]:
    """Yield the findings of each variant, while the variants are rendered."""
    rows = [(variant, answers_of(variant)) for variant in VARIANTS]
    with without_git(root) as template, started(partial(check_render, template), rows) as renders:
        yield renders


def check_render(template: Path, row: tuple[str, dict[str, Any]]) -> list[Finding]:
    """Report a variant that does not render, and its lines that are too long."""
    variant, answers = row
    with tempfile.TemporaryDirectory() as folder:
        try:
            render(template, answers, Path(folder) / variant)
        except RenderError as error:
            return [Finding("render-failed", variant, None, str(error))]
        return [*check_columns(Path(folder) / variant)]


def check_columns(project: Path) -> Iterator[Finding]:
    """Report lines of a render that are too long for its linter."""
    for path in files_of(project):
        if path.name.endswith(".min.js"):
            continue  # a library
        lines = (project / path).read_bytes().decode("utf-8", "replace").splitlines()
        for number, line in enumerate(lines, 1):
            is_row = path.suffix == ".md" and line.startswith("|")  # of a table
            if len(line) > COLUMNS and not is_row:
                message = f"has {len(line)} columns; at most {COLUMNS} are allowed: break it"
                yield Finding("size-columns", path.as_posix(), number, message)
