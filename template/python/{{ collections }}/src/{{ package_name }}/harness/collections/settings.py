"""The settings of collections and secrets, and the option `check --against`."""

import os
from dataclasses import dataclass
from typing import Any

import click

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class DeclarationSettings(CoreSettings):
    """The agent to run, and the prefix and cache time of its secrets."""

    agent_id: str | None = None  # None: the only agent in agents/
    secret_cache_seconds: int = integer(300, 0, 86_400)
    secrets_prefix: str = ""  # prepended to paths in AWS Secrets Manager
    check_against: str = ""  # a Git commit or tag


def _set_check_against(_: Any, __: Any, ref: str | None) -> None:
    if ref:
        os.environ["CHECK_AGAINST"] = ref


AGAINST_HELP = "Also compare the versions of collections with a commit or tag."
AGAINST_OPTION = click.Option(
    ["--against"], metavar="REF", expose_value=False, callback=_set_check_against, help=AGAINST_HELP
)
