"""The agent: your modules, and the harness that runs them."""

from pathlib import Path

from . import own_capabilities
from .harness import AgentApp, Modules, make_cli


def load() -> Modules:
    """Import what loads a framework; commands that run no turn do not wait for it."""
    from . import agent, model, routes

    return Modules(agent, model, routes.ROUTES)


app = AgentApp(load, own=own_capabilities, folder=Path(__file__).parent)
cli = make_cli(app)
