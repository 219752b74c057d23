"""Every check of the template, in an order in which a later one can rely on the earlier."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hooks import check_files, check_history, check_jinja, check_questions, check_size
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


def lint(
    root: Path, stages: list[list[Check]] = STAGES, against: str | None = None
) -> list[Finding]:
    """What is to be mended in the template of `root`; nothing when it is fine.

    `against` is a commit whose projects should lose nothing when they are updated to it. Raises
    TemplateError when copier.yml cannot be read at all, CommitError when Git has no such commit.
    """
    template = load(root)
    for number, stage in enumerate(stages):
        findings = [finding for check in stage for finding in check(template)]
        # What the questions and the names are is known to be fine from the second stage on.
        if number == 1 and against is not None:
            with check_history.past(root, against) as old:
                findings += check_history.check_history(old, template)
        if findings:
            return list(dict.fromkeys(findings))
    return []
