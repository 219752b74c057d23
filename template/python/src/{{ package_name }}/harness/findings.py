"""The findings of `check` about settings and files."""

from collections.abc import Iterable
from typing import Any

import click

from .project import Project

Finding = dict[str, Any]
"""{"id", "severity": "error" or "warning", "file", "line": 0 for none, "message"}."""


def diagnostic(
    id: str, message: str, severity: str = "error", file: str = "environment", line: int = 0
) -> Finding:
    """Return a finding of `check`."""
    return {"id": id, "severity": severity, "file": file, "line": line, "message": message}


def agent_file() -> str:
    """Return the path of `agent.py` for findings."""
    return Project.name_of(Project.package / "agent.py")


def format_finding(finding: Finding) -> str:
    """Return a finding as one line of text: place, id and message."""
    return f"{finding['file']}:{finding['line']} {finding['id']} {finding['message']}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors."""
    return [finding for finding in findings if finding["severity"] == "error"]


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise ClickException if a finding is an error."""
    if errors := errors_of(findings):
        texts = (e["message"] if e["file"] == "environment" else format_finding(e) for e in errors)
        raise click.ClickException("\n".join(texts))
