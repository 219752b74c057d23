"""A session that an older render stored is continued by the updated one, in every store."""

import itertools
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from hooks.releases import releases
from tests.conformance.chat import Chat, echoed
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS, Target
from tests.conftest import ROOT
from tests.stores.agents import SETTINGS, command, on
from tests.stores.forks import start
from tests.stores.stores import KINDS, STORES, Backing
from tests.updates.commands import copier
from tests.updates.edits import MEMORIES, SESSIONS
from tests.updates.history import History, commit, git, offered, rows, update
from tests.updates.own_tests import link

pytestmark = pytest.mark.slow
BY_NAME = {target.name: target for target in TARGETS}
# What a usual run has: each language, and with the S3 of strands-python below each kind of store.
USUAL = {
    ("0.3.0", "vercel-python", "custom-rest"),
    ("0.4.0", "strands-typescript", "valkey"),
}
COMMAND = "uvx copier update --defaults -r :current: -d "


def stored_sessions() -> list[ParameterSet]:
    """Each release that has stores, with each target and store."""
    having = [r.version for r in releases(ROOT) if rows() and has_stores(r.version)]
    return [
        pytest.param(*row, marks=[] if row in USUAL else [pytest.mark.full], id="-".join(row))
        for row in itertools.product(having, BY_NAME, STORES)
    ]


def has_stores(release: str) -> bool:
    return any(variant.endswith("+valkey") for variant in offered(release))


class Project:
    """A project of an owner whose collection file names a store, and how it is run."""

    def __init__(
        self, history: History, release: str, target: Target, answer: str, folder: Path
    ) -> None:
        self.target = target
        answers = {"session_store": answer}
        self.folder = history.project(folder, release, target.variant, **answers)
        self.collection = self.folder / SESSIONS

    def declare(self, text: str) -> None:
        """Put a scope and a backend into the collection file, and commit it."""
        old = self.collection.read_text("utf-8")
        new = re.sub(r"(?s)\nscope:.*?(?=\nwriteback:)", f"\n{text.rstrip()}", old)
        self.collection.write_text(new, "utf-8")
        commit(self.folder, "Where our sessions live")

    def server(self, provider: Provider, variables: dict[str, str]) -> Server:
        link(self.folder, self.target.name)
        # The server is this project's, whatever is installed.
        target = Target(
            self.target.name,
            self.target.variant,
            lambda _: command(self.folder, "serve"),
            self.target.provider,
        )
        return Server(target, self.folder, provider.origin, {**SETTINGS, **variables})

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        link(self.folder, self.target.name)
        process = start(
            command(self.folder, *words),
            cwd=self.folder,
            env={"PATH": "", "HOME": str(self.folder), "MODEL": "test-model", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        output, errors = process.communicate()
        return subprocess.CompletedProcess(words, int(process.returncode or 0), output, errors)

    def commands(self, *words: str, **variables: str) -> list[str]:
        """What AML-E10D says to run; without it, none."""
        result = self.run(*words, **variables)
        lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        found = [line for line in lines if "AML-E10D" in line]
        assert result.returncode == 1 or not found, result
        return [re.sub(r".*`(.*)`.*", r"\1", line) for line in found]


def copy(project: Project) -> Project:
    """The project as it is, which a later update does not change."""
    older = object.__new__(Project)
    older.target, older.folder = project.target, project.folder.with_name("older")
    left_out = shutil.ignore_patterns(".venv", "node_modules")
    shutil.copytree(project.folder, older.folder, ignore=left_out)
    return older


def type_in(said: str, folder: Path) -> None:
    """Run a command of Copier's as an owner types it."""
    tool, program, *words = shlex.split(said)
    assert (tool, program) == ("uvx", "copier")
    copier(*words, cwd=folder)


def unmerged(folder: Path) -> list[str]:
    return git(folder, "diff", "--name-only", "--diff-filter=U").split()


@pytest.mark.parametrize(("release", "name", "store"), stored_sessions())
def test_a_session_of_the_older_render_is_continued(
    release: str,
    name: str,
    store: str,
    history: History,
    backing: Backing,
    provider: Provider,
    tmp_path: Path,
) -> None:
    kind = KINDS[store](backing, "my-agent")
    project = Project(history, release, BY_NAME[name], kind.answer, tmp_path / "project")
    project.declare(kind.declared())
    reached = kind.environment(kind.address)

    server = project.server(provider, reached)
    try:
        chat = Chat(server, provider)
        assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
    finally:
        server.stop()
    older = copy(project)
    update(project.folder)
    assert kind.declared() in project.collection.read_text("utf-8")

    server = project.server(provider, reached)
    try:
        later = on(server, chat)
        assert later.recalled("Three.") == echoed("One.", "Two.")
        assert later.say("Four.").turn == 4
        assert kind.turns(chat.session) == 4
        if release == releases(ROOT)[-1].version:  # while a rollout has both versions
            beside = older.server(provider, reached)
            try:
                assert on(beside, chat).recalled("Five.")[-1] == ("assistant", "You said: Four.")
                assert on(beside, chat).say("Six.").turn == 6
            finally:
                beside.stop()
            assert later.recalled("Seven.")[-1] == ("assistant", "You said: Six.")
            assert later.say("Eight.").turn == 8
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize("name", ["strands-python", "vercel-typescript"])
def test_an_adapter_that_an_update_took_away_comes_back_by_the_command_that_is_shown(
    name: str, history: History, backing: Backing, provider: Provider, tmp_path: Path
) -> None:
    store = KINDS["s3"](backing, "my-agent")
    project = Project(history, "0.4.0", BY_NAME[name], "valkey", tmp_path / "project")
    project.declare(store.declared())
    reached = store.environment(store.address)
    server = project.server(provider, reached)
    try:
        chat = Chat(server, provider)
        assert chat.say("One.").turn == 1
    finally:
        server.stop()
    update(project.folder)
    commit(project.folder, "The new template")

    (said,) = project.commands("check", **reached)
    assert said.startswith(f"{COMMAND}session_store=s3")
    assert project.commands("serve", **reached) == [said]
    declared = project.collection.read_bytes()
    type_in(said, project.folder)
    assert unmerged(project.folder) == []
    assert project.collection.read_bytes() == declared

    assert project.commands("check", **reached) == []
    server = project.server(provider, reached)
    try:
        later = on(server, chat)
        assert later.recalled("Two.") == echoed("One.")
        assert store.turns(chat.session) == 2
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize("name", ["strands-typescript", "vercel-python"])
def test_values_of_an_owner_are_never_replaced_by_those_of_the_template(
    name: str, history: History, backing: Backing, tmp_path: Path
) -> None:
    """In the declared file they stand beside those of the template, and HEAD brings it back."""
    project = Project(history, "0.4.0", BY_NAME[name], "valkey", tmp_path / "project")
    project.declare(KINDS["s3"](backing, "my-agent").declared().replace("us-east-1", "eu-west-1"))
    for file in (MEMORIES, "agents/my-agent.agent.md", "iam/my-agent.iam.md"):
        answers = {"session_store": "valkey", "long_term_memory": "agentcore"}
        source = history.copied("0.4.0", BY_NAME[name].variant, **answers)
        text = (source / file).read_text("utf-8")
        (project.folder / file).write_text(text.replace("us-east-1", "eu-west-1"), "utf-8")
    commit(project.folder, "A memory, which had needed no answer")
    update(project.folder)
    assert unmerged(project.folder) == []
    commit(project.folder, "The new template")

    for said in project.commands("check"):
        assert said.startswith(COMMAND)
        type_in(said, project.folder)
        for path in unmerged(project.folder):
            assert path in (SESSIONS, MEMORIES)
            text = (project.folder / path).read_text("utf-8")
            ours = text.index("eu-west-1")
            assert text.index("<<<<<<< before updating") < ours < text.index("=======")
            git(project.folder, "checkout", "HEAD", "--", path)
        commit(project.folder, "What the command brought")
    assert project.commands("check") == []
    assert "eu-west-1" in project.collection.read_text("utf-8")
