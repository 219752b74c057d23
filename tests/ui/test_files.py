"""The files of the page, without a browser."""

from hooks.variants import TARGETS
from tests.conftest import Rendered

FILES = {"icon.svg", "index.html", "markdown.js", "page.css", "page.js", "reply.js"}


def test_all_renders_have_the_same_page(rendered: Rendered) -> None:
    folders = [next(rendered(f"{target}+ui").glob("src/**/page")) for target in TARGETS]
    assert all({*FILES} <= {path.name for path in folder.iterdir()} for folder in folders)
    pages = [[(folder / name).read_bytes() for name in sorted(FILES)] for folder in folders]
    assert all(page == pages[0] for page in pages)
