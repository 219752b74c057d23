"""The commands `forget` (erase an actor) and `iam` (print the agent's IAM policy)."""

import asyncio
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..capability import App, Capability, check_all
from ..collections.capability import Declarations
from ..contract import ACTOR_ID, ERRORS
from ..findings import refuse_errors
from .iam import erasure_policy_file, make_erasure_policy, make_policy, policy_file


def _actor(_: Any, __: Any, value: str) -> str:
    if not re.fullmatch(ACTOR_ID, value):
        raise click.BadParameter(ERRORS["invalid_actor"][1])
    return value


@click.command()
@click.option("--actor", required=True, callback=_actor, metavar="ID", help="The actor to erase.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def forget(app: App, actor: str, as_json: bool) -> None:
    """Erase an actor's sessions, events and records; exit with status 1 if any remain."""
    # Import here: these modules load a framework, which takes a second.
    from .erase import Erasure
    from .long_term import LongTermMemory

    long_term = LongTermMemory.find(_checked(app))
    report = asyncio.run(Erasure(long_term, actor).erase())
    text = json.dumps(asdict(report), ensure_ascii=False, separators=(",", ":"))
    click.echo(text if as_json else "\n".join(report.lines()))
    sys.exit(bool(report.could_not))


@click.command()
@click.option("--erasure", is_flag=True, help="Print the policy that `forget` needs in addition.")
@click.option("--save", is_flag=True, help="Save the policy to a file in iam/.")
@click.pass_obj
def iam(app: App, erasure: bool, save: bool) -> None:
    """Print the IAM policy for the agent's role; fill in its variables with envsubst."""
    declarations = Declarations.find(_checked(app))
    project = declarations.project
    prefix = declarations.settings.secrets_prefix
    policy = make_erasure_policy(project) if erasure else make_policy(project, prefix)
    text = json.dumps(policy, indent=2, ensure_ascii=False)
    if save:
        file = Path(erasure_policy_file(project) if erasure else policy_file(project))
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")
        text = f"Saved {file.as_posix()}."
    click.echo(text)


def _checked(app: App) -> list[Capability]:
    capabilities = app.load_capabilities()
    refuse_errors(check_all(capabilities))
    return capabilities
