"""The commit of a tag: a release without tests, which every `copier update` would check out.

Copier checks out a template five times for an update, and two thirds of its files are tests.
"""

import os
import re
import tempfile
from pathlib import Path

from hooks.committed import read_or_refuse

TESTS = "tests"
# Examples are published from the tag.
KEPT = (f"{TESTS}/examples/",)
LINK = re.compile(r"\]\(([^)#\s]+)")


def linked(root: Path, texts: set[Path]) -> set[Path]:
    """Return the files in `root` that texts link to, also through other texts."""
    targets: set[Path] = set()
    while texts:
        links = {
            Path(os.path.normpath(text.parent / link))
            for text in texts
            for link in LINK.findall((root / text).read_text("utf-8"))
            if ":" not in link
        }
        new = {link for link in links - targets if (root / link).is_file()}
        targets |= new
        texts = {path for path in new if path.suffix == ".md"}
    return targets


def commit_without_tests(root: Path, version: str) -> str:
    """Create a commit without the tests on top of the last commit, and return its id.

    Files that a text links to stay, so no link in the tag breaks. The branch and the files of
    `root` do not change. Raises CommitError if Git fails.
    """
    files = [
        Path(name) for name in read_or_refuse(root, "ls-files", "-z").decode().split("\0")[:-1]
    ]
    texts = {path for path in files if path.suffix == ".md" and path.parts[0] != TESTS}
    kept = linked(root, texts)
    dropped = [
        path.as_posix()
        for path in files
        if path.parts[0] == TESTS and path not in kept and not path.as_posix().startswith(KEPT)
    ]
    removed = "".join(f"{path}\0" for path in dropped)
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        read_or_refuse(root, "read-tree", "HEAD", **index)
        read_or_refuse(
            root, "update-index", "-z", "--force-remove", "--stdin", text=removed, **index
        )
        tree = read_or_refuse(root, "write-tree", **index).decode().strip()
    message = f"Release {version}, without tests"
    commit = read_or_refuse(root, "commit-tree", tree, "-p", "HEAD", "-m", message)
    return commit.decode().strip()
