"""The files of the page, without a browser."""

import json
import re

import pytest

from hooks.variants import TARGETS
from tests.conftest import ROOT, Rendered
from tests.installed import packages

FILES = {
    *("attachments.js", "entities.js", "highlight.js", "icon.svg", "index.html", "markdown.js"),
    *("marked.min.js", "page.css", "page.js", "reply.js"),
}
LIBRARY = ROOT / "template" / "shared" / "page" / "marked.min.js"


def test_all_renders_have_the_same_page(rendered: Rendered) -> None:
    folders = [next(rendered(f"{target}+ui").glob("src/**/page")) for target in TARGETS]
    assert all({*FILES} <= {path.name for path in folder.iterdir()} for folder in folders)
    pages = [[(folder / name).read_bytes() for name in sorted(FILES)] for folder in folders]
    assert all(page == pages[0] for page in pages)
    assert (folders[0] / LIBRARY.name).read_bytes() == LIBRARY.read_bytes()


def test_each_animation_has_its_frames() -> None:
    style = LIBRARY.with_name("page.css").read_text("utf-8")
    frames = re.findall(r"@keyframes (\S+)", style)
    assert re.findall(r"\banimation: (\S+)", style) == frames


@pytest.mark.slow
def test_the_library_of_the_page_is_the_one_that_npm_has_with_its_licence() -> None:
    about, script = re.split(r"(?<=\*/\n)", LIBRARY.read_text("utf-8"), maxsplit=1)
    version = re.search(r"of marked (\S+), as npm has it", about)
    assert version
    manifest = {"private": True, "dependencies": {"marked": version[1]}}
    package = packages(json.dumps(manifest).encode()) / "marked"
    published = (package / "lib" / "marked.esm.js").read_text("utf-8")
    assert script == published.rpartition("//# sourceMappingURL=")[0]  # a map is not in the project
    assert (package / "LICENSE").read_text("utf-8").strip() in about
