"""A session that the older render stored is continued by the updated one, in every store."""

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hooks.releases import releases
from tests.conformance.chat import Chat, echoed
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS, Target
from tests.conftest import ROOT
from tests.stores.agents import SETTINGS, Home, command, on, with_store
from tests.stores.conftest import ONE_EACH, SPREAD
from tests.stores.stores import STORES, Backing
from tests.updates.history import History, commit, offered, rows, update
from tests.updates.own_tests import link_packages
from tests.updates.table import row

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)
BY_NAME = {target.name: target for target in TARGETS}


def kept() -> list[ParameterSet]:
    """Each release that has stores, with each target and store; some of them are soak."""
    having = [r.version for r in releases(ROOT) if rows() and any_store(r.version)]
    usual = dict.fromkeys(having, ONE_EACH) | dict.fromkeys(having[-1:], SPREAD)
    return [
        pytest.param(
            release,
            *place,
            marks=[] if place in usual[release] else [pytest.mark.soak],
            id="-".join([release, *place]),
        )
        for release in having
        for place in itertools.product(BY_NAME, STORES)
    ]


def any_store(release: str) -> bool:
    return any(variant.endswith("+valkey") for variant in offered(release))


class Project(Home):
    """A project of an owner, as the home of the agent that it is."""

    def __init__(self, target: Target, backing: Backing, project: Path, name: str, store: str):
        self.project = self.folder = project
        self.backing, self.agent_id = backing, name
        self.target = replace(with_store(target), command=lambda place: self.serve(place))
        self.store = self.declare(store)

    def serve(self, place: Path) -> list[str]:
        """The command that serves this project with what is installed in `place`."""
        if (self.project / "package.json").exists():
            link_packages(self.project, place)
            return command(self.project, "serve")
        code = "from app.main import cli; cli()"
        return [str(place / ".venv" / "bin" / "python"), "-c", code, "serve"]

    def server(self, provider: Provider) -> Server:
        here = {"PYTHONPATH": str(self.project / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        reached = self.store.environment(self.store.address)
        return Server(self.target, self.project, provider.origin, {**SETTINGS, **reached, **here})


@pytest.mark.parametrize(("release", "name", "store"), kept())
def test_a_session_of_the_older_render_is_continued(
    release: str,
    name: str,
    store: str,
    history: History,
    backing: Backing,
    provider: Provider,
    tmp_path: Path,
) -> None:
    target = BY_NAME[name]
    with row(release, f"{target.variant}+{store}", "its store, and a session in it") as line:
        agent = f"agent-{os.getpid()}-{next(_numbers)}"
        answers = {"session_store": "valkey", "project_name": agent}
        folder = history.project(tmp_path / "project", release, target.variant, **answers)
        home = Project(target, backing, folder, agent, store)
        commit(folder, "Where our sessions live")

        server = home.server(provider)
        try:
            chat = Chat(server, provider)
            assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
        finally:
            server.stop()
        update(folder)
        assert home.store.declared() in home.collection.read_text("utf-8")

        server = home.server(provider)
        try:
            later = on(server, chat)
            assert later.recalled("Three.") == echoed("One.", "Two.")
            assert later.say("Four.").turn == 4
            assert home.store.turns(chat.session) == 4
        finally:
            server.stop()
        line.result = "the session goes on with its fourth turn"
