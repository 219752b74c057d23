"""What a reply of special characters costs the page, which shows it anew with each frame."""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.installed import NODE

MOST_MILLISECONDS = 1000  # about ten times what a quiet machine takes


@pytest.mark.slow
def test_no_repeat_of_special_characters_stops_the_page() -> None:
    script, module = (
        Path(__file__).with_name("hostile.mjs"),
        ROOT / "template/shared/page/markdown.js",
    )
    done = subprocess.run(
        [str(NODE), str(script), str(module)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    took, what = done.stdout.split(maxsplit=1)
    assert int(took) < MOST_MILLISECONDS, what
