"""The commands `forget`, which erases an actor, and `iam`, which prints the agent's policy."""

import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..collections.check import load_project
from ..contract import ACTOR_ID, ERRORS
from ..settings import Settings, read_settings, refuse_errors
from .iam import make_policy, policy_file

# Modules that load a framework are imported by the command that needs them.
if TYPE_CHECKING:
    from ..runtime import Runtime
    from .erase import Report


def _actor(_: Any, __: Any, value: str) -> str:
    if not re.fullmatch(ACTOR_ID, value):
        raise click.BadParameter(ERRORS["invalid_actor"][1])
    return value


@click.command()
@click.option("--actor", required=True, callback=_actor, metavar="ID", help="Who is forgotten.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def forget(actor: str, as_json: bool) -> None:
    """Erase an actor's sessions, events and records; exit with 1 if some are left."""
    from ..runtime import Runtime

    report = asyncio.run(_forget(Runtime(_checked_settings()), actor))
    text = json.dumps(asdict(report), ensure_ascii=False, separators=(",", ":"))
    click.echo(text if as_json else "\n".join(report.lines()))
    sys.exit(bool(report.could_not))


async def _forget(runtime: "Runtime", actor: str) -> "Report":
    from .erase import Erasure

    erasure = Erasure(runtime.long_term, actor)
    try:
        await runtime.erase_sessions(erasure.report, await erasure.find_sessions())
        return await erasure.erase()
    finally:
        await runtime.close()


@click.command()
@click.option("--save", is_flag=True, help="Write it to iam/<agent_id>.policy.json.")
def iam(save: bool) -> None:
    """Print the policy that the agent's role needs on AWS; envsubst fills in its variables."""
    project = load_project(Path(), _checked_settings().agent_id)
    text = json.dumps(make_policy(project), indent=2, ensure_ascii=False)
    if save:
        file = Path(policy_file(project))
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")
        text = f"Saved {file.as_posix()}."
    click.echo(text)


def _checked_settings() -> Settings:
    from ..runtime import Runtime

    settings, findings = read_settings()
    findings += Runtime.check(settings)
    refuse_errors(findings)
    return settings
