"""The commands of an agent with memory: `check` of its files too, `sessions`, `forget`, `iam`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from ..main import cli
from ..model import check_model
from ..settings import diagnostic, read_settings
from .endpoint import MESSAGES, check_endpoint
from .forget import forget
from .frontmatter import read
from .options import Options, read_options
from .policy import check_policy, iam
from .project import check_project, load_project
from .resource_check import check_resources
from .secrets import Secrets
from .secrets_check import check_secrets
from .session_commands import sessions

ORDER = ("severity", "file", "line", "id")  # "error" is before "warning"

__all__ = ["cli"]


def main() -> None:
    """Run a command and leave: a call that hangs in a thread would keep the process."""
    try:
        cli()
    except SystemExit as end:  # as click always ends
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--against", metavar="REF", help="Compare with a commit: what may have changed?")
@click.option("--endpoint", is_flag=True, help="Call custom endpoints, in a session of its own.")
def check(as_json: bool, against: str | None, endpoint: bool) -> None:
    """Say what is wrong with the settings, collections and agents; exit with 1 for an error."""
    settings, found = read_settings()
    options, wrong = read_options()
    found += wrong + check_model(settings) + check_project(Path(), options.agent_id, against)
    errors = sum(one["severity"] == "error" for one in found)
    if not errors:
        found += check_secrets(Path(), options) + check_policy(Path(), options)
        found += asyncio.run(check_resources(Path(), options))
    if endpoint and not errors:
        found += asyncio.run(_check_endpoints(options))
    found.sort(key=lambda one: [one[name] for name in ORDER])
    errors = sum(one["severity"] == "error" for one in found)
    warnings = len(found) - errors
    if as_json:
        report = {"diagnostics": found, "errors": errors, "warnings": warnings}
        click.echo(json.dumps(report, ensure_ascii=False, separators=(",", ":")))
    else:
        lines = [f"{one['file']}:{one['line']} {one['id']} {one['message']}" for one in found]
        click.echo("\n".join([*lines, f"{errors} errors, {warnings} warnings"]))
    sys.exit(min(errors, 1))


async def _check_endpoints(options: Options) -> list[dict[str, Any]]:
    project, found = load_project(Path(), options.agent_id), list[dict[str, Any]]()
    is_called = False
    for id in dict.fromkeys([*project.reads, *project.writes]):
        collection, file = project.collections[id], f"collections/{id}.collection.md"
        if collection.backend.type == "custom":
            where = file, read(Path(file), file).line(("backend", "transport"))
            secrets = Secrets(options)
            found += await check_endpoint(collection, project.agent_id, options, secrets, *where)
            is_called = True
    if not is_called:
        found.append(
            diagnostic(
                "AML-C00", MESSAGES["AML-C00"], file=f"agents/{project.agent_id}.agent.md", line=1
            )
        )
    return found


for command in (sessions, forget, iam):
    cli.add_command(command)
