"""The page in docs/ of a render with the route for useChat, as its owner would type it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.conftest import Rendered
from tests.installed import NODE, packages

pytestmark = pytest.mark.slow
# What `npm install` brings to a new project of Next.js, but for Next.js: the page imports none.
PACKAGES = {
    "@ai-sdk/react": "^4.0.177",
    "@types/react": "^19",
    "ai": "^7.0.173",
    "react": "^19.2.1",
    "typescript": "^7.0",
}
# What create-next-app writes.
OPTIONS = {
    "target": "es2022",
    "lib": ["dom", "dom.iterable", "esnext"],
    "strict": True,
    "noEmit": True,
    "skipLibCheck": True,
    "module": "esnext",
    "moduleResolution": "bundler",
    "isolatedModules": True,
    "jsx": "react-jsx",
    "types": [],
}
BLOCK = re.compile(r"(?m)^    'use client'\n(?:    .*\n|\n)+")


def page_of(project: Path) -> str:
    (block,) = BLOCK.findall((project / "docs" / "use-chat.md").read_text("utf-8"))
    return re.sub(r"(?m)^    ", "", str(block)).strip() + "\n"


def type_errors(folder: Path, page: str) -> str:
    """What tsc says about a page; nothing where it is right."""
    modules = packages(json.dumps({"private": True, "dependencies": PACKAGES}).encode())
    (folder / "node_modules").symlink_to(modules)
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS}))
    (folder / "page.tsx").write_text(page)
    command = [str(NODE), str(modules / "typescript" / "bin" / "tsc"), "--project", str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.full
def test_the_page_of_the_readme_has_the_right_types(rendered: Rendered, tmp_path: Path) -> None:
    (page,) = {page_of(rendered(f"{target}+ai-sdk-ui")) for target in TARGETS}
    assert type_errors(tmp_path, page) == ""


def test_the_page_shows_the_message_of_an_error(rendered: Rendered) -> None:
    page = page_of(rendered(f"{TARGETS[0]}+ai-sdk-ui"))
    (function,) = re.findall(r"^const textOf = .*$", page, re.MULTILINE)
    message = 'ALLOWED_ORIGINS does not list the Origin "http://localhost:3000".'
    refusal = json.dumps({"error": {"type": "origin_forbidden", "message": message}})
    failure = "model_failed: The model failed; this turn was not saved."
    calls = f"[{json.dumps(refusal)}, {json.dumps(failure)}].map((it) => textOf(Error(it)))"
    script = f"{function}\nconsole.log(JSON.stringify({calls}))"
    command = [str(NODE), "--input-type=module-typescript", "-e", script]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == [message, failure]
    assert "{textOf(chat.error)}" in page


def test_a_page_with_a_mistake_has_not(rendered: Rendered, tmp_path: Path) -> None:
    page = page_of(rendered(f"{TARGETS[0]}+ai-sdk-ui"))
    errors = type_errors(tmp_path, page.replace("sendMessage({ text:", "sendMessage({ words:"))
    assert "page.tsx" in errors
