"""Checks of copier.yml. Copier passes over a key that it does not know, as a misspelt one is."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from hooks.findings import Finding
from hooks.template import QUESTIONS, Template

HELP_LENGTH = 60

REQUIRED_SETTINGS: dict[str, tuple[Any, str]] = {
    "_subdirectory": ("template", "so that nothing else of this repository is rendered"),
    "_min_copier_version": (None, "so that an older Copier says so instead of failing halfway"),
    "_envops": (
        {"undefined": "jinja2.StrictUndefined", "trim_blocks": True, "lstrip_blocks": True},
        "so that a misspelt answer is an error, and blocks leave no blank lines",
    ),
    "_exclude": (["__pycache__"], "because setting _subdirectory empties Copier's own list"),
}
SETTINGS = {
    *REQUIRED_SETTINGS,
    *(f"_message_{when}_{what}" for when in ("before", "after") for what in ("copy", "update")),
    "_preserve_symlinks",
}
KEYS = {
    "choices",
    "default",
    "help",
    "multiline",
    "multiselect",
    "placeholder",
    "qmark",
    "type",
} | {
    "validator",
    "when",
}
NEEDS_TRUST = "makes Copier refuse without --trust: say what to do in a message or the README"
NOT_RECORDED = "is not recorded, so the next update takes the default again: read it at run time"
UNSAFE = {
    "_answers_file": "makes every update need --answers-file: keep Copier's own name",
    "_external_data": "reads files outside the template, and fails where they are missing",
    "_jinja_extensions": NEEDS_TRUST,
    "_migrations": NEEDS_TRUST,
    "_secret_questions": NOT_RECORDED,
    "_skip_if_exists": "keeps fixes from users and brings back what they deleted: keep files small",
    "_tasks": NEEDS_TRUST,
}
UNSAFE_KEYS = {"secret": NOT_RECORDED}


def found(template: Template, id: str, path: tuple[str, ...], message: str) -> Finding:
    """A finding about the key `path` of copier.yml."""
    return Finding(id, QUESTIONS, template.lines.get(path), f"{'.'.join(path)} {message}")


def check_settings(template: Template) -> Iterator[Finding]:
    """Each setting is known, safe and, where this template depends on it, there."""
    for name in template.settings:
        if name in UNSAFE:
            yield found(template, "unsafe-feature", (name,), UNSAFE[name])
        elif name not in SETTINGS:
            yield found(
                template, "unknown-setting", (name,), f"is no setting{hint(name, SETTINGS)}"
            )
    for name, (wanted, reason) in REQUIRED_SETTINGS.items():
        value = template.settings.get(name)
        if value is None or (wanted is not None and not holds(value, wanted)):
            needed = "is missing" if wanted is None else f"must hold {wanted}"
            yield found(template, "missing-setting", (name,), f"{needed}, {reason}")


def holds(value: object, wanted: Any) -> bool:
    """Whether a setting is `wanted`, or has everything that is in it."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and wanted.items() <= value.items()
    if isinstance(wanted, list):
        return isinstance(value, list) and set(wanted) <= set(value)
    # The answers may choose a folder in it.
    return value == wanted or str(value).startswith(f"{wanted}{{{{")


def check_keys(template: Template) -> Iterator[Finding]:
    """Each key of a question is known and safe, and none is there twice."""
    for path in template.repeated:
        yield found(template, "repeated-key", path, "is there twice: remove the one that is wrong")
    for name, question in template.questions.items():
        for key in question if isinstance(question, dict) else ():
            if key in UNSAFE_KEYS:
                yield found(template, "unsafe-feature", (name, key), UNSAFE_KEYS[key])
            elif key not in KEYS:
                yield found(template, "unknown-key", (name, key), f"is no key{hint(key, KEYS)}")


def hint(name: object, known: set[str]) -> str:
    """The known name that was probably meant, or all of them."""
    close = get_close_matches(str(name), known, 1)
    return f": write {close[0]}" if close else f": use one of {', '.join(sorted(known))}"


def check_complete(template: Template) -> Iterator[Finding]:
    """Each question has what --defaults, a bad answer and a person in front of it need."""
    for name, question in template.questions.items():
        if not isinstance(question, dict):
            message = "is not a mapping: give it type, help, default, and choices or validator"
            yield found(template, "incomplete-question", (name,), message)
            continue
        asked = question.get("when") is not False
        for key in ("type", "default", "help") if asked else ("type", "default"):
            if question.get(key) is None:
                yield found(template, "incomplete-question", (name,), f"has no {key}: add one")
        limited = question.get("type") == "bool" or {"choices", "validator"} & question.keys()
        if asked and not limited:
            message = "takes any answer: give it choices or a validator"
            yield found(template, "incomplete-question", (name,), message)
        if len(str(question.get("help", ""))) > HELP_LENGTH:
            message = f"is longer than {HELP_LENGTH} characters: ask in fewer words"
            yield found(template, "long-help", (name, "help"), message)


def check_defaults(template: Template) -> Iterator[Finding]:
    """Each default is one that its own question accepts, after any answers to those before it.

    Copier shows a traceback instead of the question where that is not so.
    """
    for name, question in template.questions.items():
        if question.get("when") is False:
            continue
        refused = {}
        for answers in template.combinations:
            default = template.default(name, answers)
            text = template.text(question.get("validator", ""), {**answers, name: default}).strip()
            if question.get("choices") and default not in template.allowed(name, answers):
                text = "it is not among the choices"
            if text:
                refused[repr(default)] = text
        for default, reason in refused.items():
            message = f"{default} is refused by its own question: {reason}"
            yield found(template, "refused-default", (name, "default"), message)
