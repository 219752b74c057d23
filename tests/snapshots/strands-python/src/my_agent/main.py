"""Composes the agent from your modules and the harness."""

from pathlib import Path

from . import own_capabilities
from .harness import AgentApp, Modules, make_cli


def load() -> Modules:
    """Import the modules that load a framework; commands without turns skip this."""
    from . import agent, model, routes

    return Modules(agent, model, routes)


app = AgentApp(load, own=own_capabilities, folder=Path(__file__).parent)
cli = make_cli(app)
