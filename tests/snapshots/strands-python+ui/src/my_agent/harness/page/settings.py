"""The setting of the page, and the option of `serve` that sets it."""

import os
from dataclasses import dataclass
from typing import Any

import click

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class PageSettings(CoreSettings):
    """Whether the page is served."""

    ui: int = integer(0, 0, 1)


def _set_ui(_: Any, __: Any, is_set: bool) -> None:
    if is_set:
        os.environ["UI"] = "1"


UI_HELP = "Also serve a page to talk to the agent, as UI=1 does."
UI_OPTION = click.Option(["--ui"], is_flag=True, expose_value=False, callback=_set_ui, help=UI_HELP)
