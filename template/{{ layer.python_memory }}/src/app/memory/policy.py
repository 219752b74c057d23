"""The command `iam`: the policy that the role of the agent needs on AWS, and no more than that."""

import json
import re
from pathlib import Path
from typing import Any

import click

from ..settings import read_settings
from .models import S3, AgentCoreMemory
from .needs import Statement, needs_of, secrets_of
from .options import Options, read_options
from .project import Project, check_project, load_project
from .rules import finding
from .stores import is_writable, keepers

PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
VARIABLE = re.compile("[$][{][A-Za-z0-9_]+[}]")


@click.command()
@click.option("--save", is_flag=True, help="Write it to iam/<agent_id>.policy.json.")
def iam(save: bool) -> None:
    """Print the policy that the agent's role needs on AWS; envsubst fills in its variables."""
    read_settings()  # and so .env
    options, _ = read_options()
    found = check_project(Path(), options.agent_id)
    if wrong := [one for one in found if one["severity"] == "error"]:
        lines = [f"{one['file']}:{one['line']} {one['id']} {one['message']}" for one in wrong]
        raise click.ClickException("\n".join(lines))
    project = load_project(Path(), options.agent_id)
    text = json.dumps(policy_of(project), indent=2, ensure_ascii=False)
    if save:
        file = Path(_saved(project))
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")
    click.echo(f"Saved {_saved(project)}." if save else text)


def check_policy(folder: Path, options: Options) -> list[dict[str, Any]]:
    """Whether a saved policy says what `iam` prints now; its variables may be filled in."""
    project = load_project(folder, options.agent_id)
    file = _saved(project)
    if not (folder / file).exists():
        return []
    try:
        saved = json.loads((folder / file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        saved = None
    is_same = _is_filled_in(saved, policy_of(project))
    return [] if is_same else [finding("AML-W248", file, 1)]


def policy_of(project: Project) -> dict[str, Any]:
    """What the collections need that the agent of the project uses."""
    named = [project.collections[id] for id in dict.fromkeys([*project.reads, *project.writes])]
    kept = keepers(project)
    copied = [one for one in kept[1:] if is_writable(project, one)]
    of_memory = [one for one in named if one.backend.type == "agentcore_memory"]
    used = [one for one in named if one in [*kept[:1], *copied, *of_memory]]
    regions = [one.backend.region for one in used if isinstance(one.backend, S3 | AgentCoreMemory)]
    starts = [start for start in PARTITIONS if any(it.startswith(start) for it in regions)]
    arn = f"arn:{PARTITIONS[starts[0]] if starts else 'aws'}"
    statements: dict[str, Statement] = {}
    for collection in used:
        for need, what in needs_of(project, collection, arn):
            parts = re.split("[-_]+", collection.collection_id)
            sid = need + "".join(part[:1].upper() + part[1:] for part in parts)
            while sid in statements:
                sid += "X"
            statements[sid] = {"Sid": sid, "Effect": "Allow", **what}
    if secrets := sorted({secret for one in used for secret in secrets_of(one, arn)}):
        action = {"Action": ["secretsmanager:GetSecretValue"], "Resource": secrets}
        statements["Secrets"] = {"Sid": "Secrets", "Effect": "Allow", **action}
    return {"Version": "2012-10-17", "Statement": [*statements.values()]}


def _saved(project: Project) -> str:
    return f"iam/{project.agent_id}.policy.json"


def _is_filled_in(saved: Any, policy: Any) -> bool:
    """Whether both are the same, but for what stands in place of variables."""
    if isinstance(policy, dict):
        is_same = isinstance(saved, dict) and saved.keys() == policy.keys()
        return is_same and all(_is_filled_in(saved[name], policy[name]) for name in policy)
    if isinstance(policy, list):
        is_same = isinstance(saved, list) and len(saved) == len(policy)
        return is_same and all(map(_is_filled_in, saved, policy))
    pattern = ".+".join(map(re.escape, VARIABLE.split(policy)))
    return isinstance(saved, str) and re.fullmatch(pattern, saved) is not None
