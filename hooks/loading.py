"""Read a template from disk."""

from pathlib import Path

import click
import yaml

from hooks.template import FILES, QUESTIONS, Template, TemplateError


def template_root() -> Path:
    """Return the current directory, which must be the root of the template.

    Raises UsageError if it is not, and TemplateError if copier.yml cannot be read.
    """
    root = Path.cwd()
    if not (root / QUESTIONS).is_file() or not (root / FILES).is_dir():
        raise click.UsageError(f"no {QUESTIONS} and {FILES}/ in {root}: go to the template's root")
    # Copier's own message about an unreadable copier.yml has many lines.
    load(root)
    return root


def load(root: Path) -> Template:
    """Read the template in `root`. Raises TemplateError if copier.yml cannot be used."""
    try:
        data = yaml.safe_load((root / QUESTIONS).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TemplateError(f"{QUESTIONS} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise TemplateError(f"{QUESTIONS} is not a mapping of names to settings and questions")
    if "_subdirectory" not in data:
        raise TemplateError(f"{QUESTIONS} has no _subdirectory: Copier would render everything")
    settings = {key: value for key, value in data.items() if key.startswith("_")}
    questions = {key: value for key, value in data.items() if not key.startswith("_")}
    for name, question in questions.items():
        if not isinstance(question, dict):
            raise TemplateError(f"{QUESTIONS}: {name} is not a mapping: give it type and default")
    template = Template(root, settings, questions)
    try:
        template.jinja.parse("")
    except (AttributeError, TypeError, ValueError) as error:
        raise TemplateError(f"{QUESTIONS}: Jinja rejects _envops: {error}") from error
    return template
