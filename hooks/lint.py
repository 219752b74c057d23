"""Every check of the template, in an order in which a later one can rely on the earlier."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hooks import check_files, check_jinja, check_questions, check_size
from hooks.findings import Finding
from hooks.loading import load
from hooks.template import Template

Check = Callable[[Template], Iterator[Finding]]

# Each stage runs only when the one before it found nothing: what it would say follows from that.
STAGES: list[list[Check]] = [
    [
        check_questions.check_settings,
        check_questions.check_keys,
        check_questions.check_complete,
        check_jinja.check_questions,
        check_jinja.check_files,
        check_files.check_names,
    ],
    [check_questions.check_defaults, check_files.check_answers_file, check_files.check_layers],
    [check_size.check_size],
]


def lint(root: Path, stages: list[list[Check]] = STAGES) -> list[Finding]:
    """What is to be mended in the template of `root`; nothing when it is fine.

    Raises TemplateError when copier.yml cannot be read at all.
    """
    template = load(root)
    for stage in stages:
        findings = [finding for check in stage for finding in check(template)]
        if findings:
            return list(dict.fromkeys(findings))
    return []
