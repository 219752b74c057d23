"""The tests of the page run on every machine, or say what is missing."""

import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ui.browser import find


def test_without_a_browser_tests_skip_with_the_command_and_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    playwright: Any = SimpleNamespace(chromium=SimpleNamespace(executable_path=tmp_path / "none"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="uv run playwright install chromium"):
        find(playwright)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="uv run playwright install chromium"):
        find(playwright)
