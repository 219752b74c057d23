"""What all tests share: isolation from the developer's settings, and the template without git."""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from filelock import FileLock
from pytest_copie.plugin import Copie

from hooks.rendering import quick_copier
from hooks.variants import PROJECT_NAME, TARGETS
from tests.installed import CACHE, COMPILED, plain_template
from tests.installed import rendered as render_once
from tests.stores import forks
from tests.support.own_servers import ended
from tests.windows import IS_WINDOWS, NOT_TRIED, NotTried

HERE = Path(__file__).parent
ROOT = HERE.parent

# Snapshots are renders, and examples the files of owners, with tests of their own.
collect_ignore = ["snapshots"]
collect_ignore_glob = ["examples/*/*"]

# Of these a developer's own would change what a render or an agent does.
PERSONAL = ("ANTHROPIC_", "AWS_", "GIT_", "OPENAI_")

# Copier makes and deletes some thousand files for an update, which a disk takes its time for.
MEMORY, ENOUGH = "/dev/shm", 4 << 30
is_roomy = os.path.ismount(MEMORY) and shutil.disk_usage(MEMORY).free > ENOUGH
if is_roomy and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY
elif sys.platform == "darwin":  # whose own is too long for the path of a socket
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

BYTECODE = CACHE / "bytecode"
WEEK = 7 * 24 * 60 * 60

# Where no bytecode may stand beside sources, each process of a run would compile them anew.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(BYTECODE)
    sys.dont_write_bytecode = False

# `nohup` and `&` in a script ignore Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What takes long goes first: no test process waits for the last test of another.
FIRST = (
    *("updates/", "examples/", "mutation/", "stateful/", "renders/test_python_tools"),
    *("renders/test_typescript_tools", "template/test_repository", "template/test_trust"),
    *("memory_collections/test_ranges", "memory_collections/test_rules"),
)

SAMPLES = [{"strands-python", "vercel-typescript"}, {"vercel-python", "strands-typescript"}]

# Tests of what an answer adds, and others that take long: the usual run has each in one language,
# and each of its rows with one target.
HALVED = (
    *("auth/", "background/", "bedrock/", "cli/", "conformance/", "deploy/", "effects/", "evals/"),
    *("mcp/", "memory/", "stores/"),
    *("memory_collections/test_versions", "renders/test_first_hour"),
    *("renders/test_own_capabilities", "renders/test_tracing", "renders/test_vendor_clients"),
    *("renders/test_webhooks", "ui/", "updates/test_matrix"),
)
# Options, whose code the frameworks of a language share: a row is tried in one of them.
IN_TURN = (
    *("auth/", "background/", "bedrock/", "effects/", "evals/", "mcp/", "memory/", "stores/"),
    "ui/",
)
# The contract of turns and sessions, which the usual run tries in both languages.
WHOLE = tuple(
    f"conformance/test_{name}"
    for name in (
        *("end_session", "failures", "history", "idempotency", "leaving", "one_contract"),
        *("replace_turn", "sessions", "shutdown", "turns"),
    )
)
# These the usual run tries in both languages, although sessions live in a store.
IN_BOTH = ("conformance/test_waiting.py::test_a_claim_that_the_store_makes_late",)
# A row of conformance whose sessions live in a store; all others have the same tests.
STORED = re.compile(r"-(python|typescript)-(valkey|s3|custom)")

Render = Callable[..., Path]
Rendered = Callable[[str], Path]
Once = Callable[[str, Callable[[], Any]], Any]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers for two cores: slow tests wait, and each worker imports all modules."""
    return 3 if config.option.markexpr == "not slow" else 4


def pytest_sessionstart(session: pytest.Session) -> None:
    """Delete what was compiled long ago: some of it was of copies that are gone."""
    if not hasattr(session.config, "workerinput"):
        for path in (*BYTECODE.rglob("*.pyc"), *COMPILED.rglob("*")):
            if path.is_file() and path.stat().st_mtime < time.time() - WEEK:
                path.unlink()


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Report a folder that is not tried on Windows as skipped."""
    return _not_tried(path, parent)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Report a module that is not tried on Windows as skipped."""
    return _not_tried(module_path, parent)


def _not_tried(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    is_listed = IS_WINDOWS and any(path == HERE / name for name in NOT_TRIED)
    return NotTried.from_parent(parent, path=path) if is_listed else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with NO_SKIPS in which a test is skipped: where CI runs, nothing is missing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """What only the full run has is slow, too: `-m "not slow"` replaces the usual `-m`."""
    if is_full(item):
        item.add_marker("slow")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Leave out what the usual run need not have, then put what takes long first.

    Otherwise the order stays: servers are shared in it.
    """
    sample(items)
    halve(items)
    choose_target(items)
    choose_store(items)
    left_out = repeated(items)
    items[:] = [item for item in items if is_row(item) and item not in left_out]
    yield
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """End the servers of a test with it; those of its fixtures end with them."""
    with ended():
        return (yield)


def is_row(item: pytest.Item) -> bool:
    """Whether a marker `rows` lets a test have this row, which would only be skipped otherwise."""
    for mark in item.iter_markers("rows"):
        assert isinstance(item, pytest.Function)
        if not mark.kwargs["where"](item.callspec.params):
            return False
    return True


def sample(items: list[pytest.Item]) -> None:
    """Of a slow test that all targets have, mark two targets as full: one of each language.

    The two that stay have both frameworks, too; which they are depends on the name of the test.
    """
    tests: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item, target in usual_rows(items):
        tests[item.nodeid.replace(target, "*")][target] = item
    for test, rows in tests.items():
        if len(rows) == len(TARGETS):
            for target in SAMPLES[crc32(test.encode()) % 2]:
                rows[target].add_marker("full")


def halve(items: list[pytest.Item]) -> None:
    """Mark rows of one language as full where both have a test: in HALVED, and with a store."""
    tests: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item, target in usual_rows(items):
        test, _, row = item.nodeid.partition("[")
        is_stored = STORED.search(row) is not None
        if test.removeprefix("tests/").startswith(IN_BOTH):
            continue
        if (is_stored or is_halved(test)) and is_row(item):
            tests[f"{test} {is_stored}"][target.partition("-")[2]].append(item)
    for test, rows in tests.items():
        if len(rows) == 2:
            for item in rows[sorted(rows)[crc32(test.encode()) % 2]]:
                item.add_marker("full")


def is_halved(test: str) -> bool:
    """Whether the usual run has a test in one language."""
    name = test.removeprefix("tests/")
    return name.startswith(HALVED) and not name.startswith(WHOLE)


def choose_target(items: list[pytest.Item]) -> None:
    """Mark rows of a test in HALVED as full, so that each stays with one target.

    The name of the test decides which target comes first, so that few servers are started for it.
    """
    rows: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item, target in targeted(items):
        if is_halved(item.nodeid) and is_row(item):
            rows[item.nodeid.replace(target, "*")][target] = item
    for row, found in rows.items():
        test = row.partition("[")[0]
        kept = min(found, key=lambda target: crc32(f"{test} {target}".encode()))
        for target in found.keys() - {kept}:
            found[target].add_marker("full")
            found[target].add_marker("slow")


def repeated(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the rows that no run has: of an option, which the frameworks of a language share.

    Of each row of a test in IN_TURN one framework of each language stays: that of the usual run, or
    the one that the name of the row decides.
    """
    rows: dict[str, list[tuple[bool, int, pytest.Item]]] = defaultdict(list)
    for item in items:
        targets = [name for name in TARGETS if name in item.name]
        if len(targets) == 1 and item.nodeid.removeprefix("tests/").startswith(IN_TURN):
            row = item.nodeid.replace(targets[0], f"*-{targets[0].partition('-')[2]}")
            rows[row].append((is_full(item), crc32(item.nodeid.encode()), item))
    kept = {item for found in rows.values() for is_last, _, item in found if not is_last}
    kept |= {min(found, key=lambda it: it[:2])[2] for found in rows.values()}
    return {item for found in rows.values() for *_, item in found} - kept


def choose_store(items: list[pytest.Item]) -> None:
    """Mark rows of memory tests as full: each stays with sessions in the process or in a store."""
    tests: dict[str, dict[bool, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item, _ in usual_rows(items):
        test, _, row = item.nodeid.partition("[")
        if test.startswith("tests/memory/") and is_row(item):
            tests[test][STORED.search(row) is not None].append(item)
    for test, rows in tests.items():
        if len(rows) == 2:
            for item in rows[crc32(test.encode()) % 2 == 1]:
                item.add_marker("full")


def usual_rows(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
    """Yield each slow test of the usual run that is about one target, and that target."""
    return ((item, it) for item, it in targeted(items) if item.get_closest_marker("slow"))


def targeted(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
    """Yield each test of the usual run that is about one target, and that target."""
    for item in items:
        targets = [name for name in TARGETS if name in item.name]
        if len(targets) == 1 and not is_full(item):
            yield item, targets[0]


def is_full(item: pytest.Item) -> bool:
    """Whether only the full run has a test."""
    return item.get_closest_marker("full") is not None


@pytest.fixture(scope="session", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[None]:
    """Keep the developer's Copier settings, Git settings and model accounts out of every test."""
    folder = tmp_path_factory.mktemp("settings")
    # Copier does not take an empty file.
    (folder / "settings.yml").write_text("{}\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name == "MODEL" or name.startswith(PERSONAL):
                patch.delenv(name)
        patch.setenv("COPIER_SETTINGS_PATH", str(folder / "settings.yml"))
        patch.setenv("COPIER_CACHE_DIR", str(folder / "cache"))
        for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
            patch.setenv(name, os.devnull)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Test")
            patch.setenv(f"GIT_{role}_EMAIL", "test@example.com")
        patch.setenv(forks.FOLDER, str(shared))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Render and update quickly."""
    with quick_copier():
        yield


@pytest.fixture(scope="session")
def template() -> Path:
    """The working tree's copier.yml and template/ in a folder without git, to read only."""
    return plain_template()


@pytest.fixture
def own_template(template: Path, tmp_path: Path) -> Path:
    """A copy of the template that a test may break."""
    return Path(shutil.copytree(template, tmp_path / "own-template"))


@pytest.fixture
def render(copie: Copie, template: Path) -> Render:
    """Render with pytest-copie, which hands back an error instead of raising it."""

    def render(template_dir: Path = template, **answers: Any) -> Path:
        result = copie.copy({"project_name": PROJECT_NAME, **answers}, template_dir=template_dir)
        if result.exception is not None:
            raise result.exception
        assert result.project_dir is not None
        return result.project_dir

    return render


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this run: test processes share what they make in it."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def once(shared: Path) -> Once:
    """What takes long to find out, as JSON: one test process makes it, the others read it."""

    def once(name: str, make: Callable[[], Any]) -> Any:
        path = shared / f"{name}.json"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                path.write_text(json.dumps(make()), "utf-8")
        return json.loads(path.read_text("utf-8"))

    return once


@pytest.fixture(scope="session")
def rendered() -> Rendered:
    """The render of a variant, to read only."""
    return render_once
