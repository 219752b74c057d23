"""Files in `chat`: attached before a prompt, or named on the command line."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hooks.variants import TARGETS, language_of
from tests.installed import NODE, clean_environment, installed
from tests.stores import forks
from tests.support.files import PDF, jpeg, png

pytestmark = pytest.mark.slow

Chat = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=TARGETS)
def chat(request: pytest.FixtureRequest) -> Chat:
    project = installed(request.param)
    is_python = language_of(request.param) == "python"
    own = [project / ".venv" / "bin" / "my-agent"] if is_python else [NODE, "src/main.ts"]

    def run(*arguments: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
        command = [*map(str, own), "chat", *map(str, arguments)]
        return forks.run(command, project, clean_environment(), 60, lines, is_apart=True)

    return run


def test_files_go_with_the_next_prompt(chat: Chat, tmp_path: Path) -> None:
    photo = tmp_path / "my photo.png"
    photo.write_bytes(png())
    notes = tmp_path / "notes.md"
    notes.write_text("# Title\n")
    lines = f"/attach {photo}\nWhat is it?\nAnd now?\n"
    shown = chat("--file", notes, lines=lines).stdout
    assert f"Attached my photo.png ({len(png())} bytes) to the next prompt." in shown
    first, second = [line for line in shown.splitlines() if "Now you said" in line]
    assert first.endswith(
        f" You attached text/markdown (8 bytes). You attached image/png ({len(png())} bytes)."
    )
    assert "You attached" not in second


def test_a_question_has_files(chat: Chat, tmp_path: Path) -> None:
    for name, content in (("a.pdf", PDF), ("b.jpg", jpeg())):
        (tmp_path / name).write_bytes(content)
    done = chat("--file", tmp_path / "a.pdf", "--file", tmp_path / "b.jpg", "Compare them.")
    assert done.returncode == 0
    assert "You attached application/pdf" in done.stdout
    assert "You attached image/jpeg" in done.stdout
    assert "Attached " not in done.stdout


@pytest.mark.full
def test_a_file_that_cannot_be_sent_is_an_error(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\x00\x01")
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(10**9)
    for name, message in (
        ("data.bin", "data.bin has the type application/octet-stream"),
        ("big.txt", "big.txt is larger than 4500000 bytes"),
        ("none.png", f"Cannot read {tmp_path}/none.png: There is no such file."),
        (".", "Cannot read "),
    ):
        done = chat("--file", tmp_path / name, "Look.")
        assert done.returncode == 1, name
        assert f"Error: {message}" in done.stderr
        assert "You said" not in done.stdout
        shown = chat(lines=f"/attach {tmp_path / name}\nHello.\n").stdout
        assert message in shown
        assert "You attached" not in shown
        assert "Hello." in shown


def test_attached_files_are_removed(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "a b.pdf").write_bytes(PDF)
    path = tmp_path / "a b.pdf"
    lines = f"/attach '{path}'\n/attach\nHello.\n/attach \"{path}\"\n/new\nAgain.\n"
    shown = chat(lines=lines).stdout
    assert shown.count("Attached a b.pdf (") == 2
    assert "No files are attached to the next prompt." in shown
    assert "You attached" not in shown
    assert "Again." in shown
