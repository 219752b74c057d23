"""Renders in many processes: quickly, in order, and without a fork of a process with threads."""

import operator
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hooks import snapshots
from hooks.variants import answers_of
from hooks.workers import FEW, started
from tests.conftest import ROOT


@pytest.fixture
def thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.usefixtures("thread")
@pytest.mark.parametrize("count", [FEW, 3 * FEW])
def test_results_are_in_the_order_of_the_rows_and_no_thread_is_forked(count: int) -> None:
    rows = [-number for number in range(count)]
    with warnings.catch_warnings(record=True) as caught, started(operator.neg, rows) as results:
        assert list(results) == [*range(count)]
    assert caught == []


def test_rows_that_have_not_begun_are_dropped() -> None:
    begin = time.monotonic()
    with pytest.raises(LookupError), started(time.sleep, [0.5] * 200):
        raise LookupError
    assert time.monotonic() - begin < 200 * 0.5 / 4


def test_processes_import_the_hooks_of_this_repository_in_any_folder(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    code += "from hooks.variants import language_of; from hooks.workers import started\n"
    code += f"with started(language_of, ['strands-python'] * {3 * FEW}) as found: print({{*found}})"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.stdout == "{'python'}\n", result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["strands-python+mcp", "vercel-typescript+valkey+kubernetes"])
def test_a_quick_render_has_the_files_of_copier(
    variant: str, template: Path, tmp_path: Path
) -> None:
    """Unlike all tests, a process of its own has Copier without the changes that make it quick."""
    answers = tmp_path / "answers.yml"
    answers.write_text(yaml.safe_dump(answers_of(variant)))
    project = tmp_path / "my-agent"
    command = [sys.executable, "-m", "copier", "copy", "--defaults", "--quiet"]
    subprocess.run([*command, "--data-file", answers, template, project], check=True)
    slow, quick = snapshots.read(project), snapshots.tree(template, answers_of(variant))
    for tree in (slow, quick):
        del tree[".copier-answers.yml"]  # which names the folder of the template
    assert slow == quick
