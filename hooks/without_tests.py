"""What a tag has: the release without its tests, which every `copier update` would check out.

Copier checks a template out five times for an update, and two files of three are tests.
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
    """The files in `root` that Markdown texts link to, and those that these link to."""
    found: set[Path] = set()
    while texts:
        links = {
            Path(os.path.normpath(text.parent / link))
            for text in texts
            for link in LINK.findall((root / text).read_text("utf-8"))
            if ":" not in link
        }
        new = {link for link in links - found if (root / link).is_file()}
        found |= new
        texts = {path for path in new if path.suffix == ".md"}
    return found


def commit_without_tests(root: Path, version: str) -> str:
    """Make a commit on top of the last one that lacks the tests; return its id.

    What a text links to stays, so that no link of the tag leads nowhere. Neither the branch nor
    the files of `root` change. Raises CommitError when Git fails.
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
            root, "update-index", "-z", "--force-remove", "--stdin", given=removed, **index
        )
        tree = read_or_refuse(root, "write-tree", **index).decode().strip()
    message = f"Release {version} as it is copied, without tests"
    made = read_or_refuse(root, "commit-tree", tree, "-p", "HEAD", "-m", message)
    return made.decode().strip()
