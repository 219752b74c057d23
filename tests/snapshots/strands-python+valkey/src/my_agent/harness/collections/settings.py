"""The settings of the declared collections, and the option of `check` that sets one."""

import os
from dataclasses import dataclass
from typing import Any

import click

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class DeclarationSettings(CoreSettings):
    """Which agent runs, and where and how long its secrets are kept."""

    agent_id: str | None = None  # None: the only file in agents/
    secret_cache_seconds: int = integer(300, 0, 86_400)
    secrets_prefix: str = ""  # of paths, where they are names in AWS Secrets Manager
    check_against: str = ""  # a commit of git


def _set_against(_: Any, __: Any, ref: str | None) -> None:
    if ref:
        os.environ["CHECK_AGAINST"] = ref


AGAINST_HELP = "Also compare the versions of collections with a commit or a tag."
AGAINST_OPTION = click.Option(
    ["--against"], metavar="REF", expose_value=False, callback=_set_against, help=AGAINST_HELP
)
