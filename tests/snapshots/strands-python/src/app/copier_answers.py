"""The answers that Copier recorded, compared with the files that are there."""

from pathlib import Path
from typing import Any

from .settings import diagnostic

FILE = ".copier-answers.yml"
# The module that an answer brings; others bring none.
MODULES = {
    "session_store": {"valkey": "store/valkey", "s3": "store/s3", "custom": "store/endpoint"},
    "long_term_memory": {"agentcore": "memory/agentcore"},
}


def check_answers() -> list[dict[str, Any]]:
    """Return a finding for each answer that was edited by hand."""
    sources, findings = Path(__file__).parent, []
    lines = Path(FILE).read_text("utf-8").splitlines() if Path(FILE).exists() else []
    for number, line in enumerate(lines, 1):
        question, _, answer = line.partition(": ")
        modules = MODULES.get(question, {})
        there = [one for one, path in modules.items() if (sources / f"{path}.py").exists()]
        if answer not in there and (there or answer in modules):
            command = f"uvx copier update --defaults -r :current: -d {question}={answer}"
            message = f"This line was edited: restore it, commit, and type `{command}`."
            findings.append(diagnostic("SET-ANSWERS", message, file=FILE, line=number))
    return findings
