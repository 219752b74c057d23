"""Checks of the Jinja in file names, files and copier.yml."""

import re
from collections.abc import Iterator

from jinja2 import TemplateSyntaxError, meta, nodes

from hooks.findings import Finding
from hooks.template import BUILT_IN, FILES, QUESTIONS, SUFFIX, Template


def check_files(template: Template) -> Iterator[Finding]:
    """Each .jinja compiles, uses an answer and only defined ones; no other file holds an answer."""
    known = {*BUILT_IN, *template.questions}
    written = re.compile(rf"\{{\{{-? *({'|'.join(map(re.escape, template.questions))})\b")
    for path in template.files:
        place = f"{FILES}/{path}"
        for part in path.parts:
            yield from problems(template, part, known, place, whole=False)
        try:
            text = (template.root / FILES / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if path.suffix == SUFFIX:
                yield Finding("jinja-syntax", place, None, "is not UTF-8: save it as UTF-8")
            continue
        if path.suffix != SUFFIX:
            for number, line in enumerate(text.splitlines(), 1):
                if match := written.search(line):
                    message = (
                        f"would show {match[0]} }}}} as it is: add {SUFFIX} to the file's name"
                    )
                    yield Finding("jinja-unrendered", place, number, message)
            continue
        yield from problems(template, text, known, place)
        if not re.search(r"\{[{%]", text):
            yield Finding(
                "jinja-unused", place, None, f"uses no answer: drop {SUFFIX} from its name"
            )


def check_questions(template: Template) -> Iterator[Finding]:
    """The Jinja in a question uses only the questions before it, and messages any question."""
    known = set(BUILT_IN)
    for name, question in template.questions.items():
        for key, value in question.items() if isinstance(question, dict) else ():
            own = {name} if key == "validator" else set()
            line = template.lines.get((name, key))
            for text in texts(value):
                yield from problems(template, text, known | own, QUESTIONS, line, whole=False)
        known.add(name)
    for name, value in template.settings.items():
        line = template.lines.get((name,))
        for text in texts(value):
            yield from problems(template, text, known, QUESTIONS, line, whole=False)


def texts(value: object) -> Iterator[str]:
    """Every string in one value of copier.yml."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def problems(
    template: Template,
    text: str,
    known: set[str],
    place: str,
    line: int | None = None,
    whole: bool = True,
) -> Iterator[Finding]:
    """What is wrong with a piece of Jinja: a whole file, or something short that is on `line`."""
    try:
        tree = template.jinja.parse(text)
    except TemplateSyntaxError as error:
        number = error.lineno if whole else line
        yield Finding("jinja-syntax", place, number, f"does not compile: {error.message}")
        return
    names = {node.name: node.lineno for node in reversed(list(tree.find_all(nodes.Name)))}
    # `{{ old if old is defined else 'new' }}` is how a renamed question keeps its old answer.
    tests = (test.node for test in tree.find_all(nodes.Test) if test.name == "defined")
    excused = {node.name for node in tests if isinstance(node, nodes.Name)}
    for name in sorted(meta.find_undeclared_variables(tree) - known - excused):
        if name not in template.jinja.globals:
            message = f"uses {name}, which no question before it defines: mend the name"
            number = names.get(name) if whole else line
            yield Finding("jinja-undefined", place, number, message)
