"""A clone of this repository whose tags are the releases, and the working tree as the newest."""

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from copier import Settings, run_copy, run_update
from filelock import FileLock
from packaging.version import Version

from hooks.check_history import past
from hooks.committed import CommitError
from hooks.releases import make_tags, releases
from hooks.rendering import without_git
from hooks.variants import VARIANTS, answers_of
from tests.conftest import ROOT
from tests.installed import CACHE, digest_of
from tests.matrix import one_framework

NEWEST = "9999"  # the version of the working tree
AGENTS = {"src/app/agent.py", "src/my_agent/agent.py", "src/agent.ts"}
FIRST_WITH_PACKAGE = Version("0.8.0")  # the first release that asks for `package_name`
MISSING = "without the releases; git fetch --unshallow brings them"


@cache
def offered(release: str) -> list[str]:
    """The variants that a release can render. Found out once: test processes collect its rows."""
    commit = {release.version: release.commit for release in releases(ROOT)}[release]
    sources = digest_of(*ROOT.glob("hooks/*.py"), Path(__file__))
    path = CACHE / "offered" / sources / f"{commit}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_text(json.dumps(_offered(commit)))
    found: list[str] = json.loads(path.read_text())
    return found


def _offered(commit: str) -> list[str]:
    """What a release lets one answer, and has an agent for.

    The first release asked for targets that it did not have yet.
    """
    with past(ROOT, commit) as template:
        have = 0
        for places in template.targets.values():
            for path in AGENTS & places.keys():
                have |= places[path]
        combinations = [
            answers for at, answers in enumerate(template.combinations) if have >> at & 1
        ]
    return [
        variant
        for variant, answers in VARIANTS.items()
        if any(answers.items() <= possible.items() for possible in combinations)
    ]


def rows() -> list[tuple[str, str]]:
    """Each release with each target, with each capability that was new, the last with all options.

    None in a clone that lacks the commits.
    """
    found: list[tuple[str, str]] = []
    known: list[str] = []
    try:
        listed = [release.version for release in releases(ROOT)]
        for version in listed:
            names = offered(version)
            is_last = version == listed[-1]
            new = [one for one in names if one not in known and "model" not in VARIANTS[one]]
            chosen = [one for one in names if is_last or "+" not in one or one in new]
            found += [(version, name) for name in chosen]
            known = names
    except CommitError:
        return []
    return found


def one_framework_of(test: str) -> list[tuple[str, str]]:
    """Each release with its rows of this test, which is about what both frameworks share."""
    return [
        (release, variant)
        for release, group in itertools.groupby(rows(), lambda row: row[0])
        for variant in sorted(one_framework(f"{test} {release}", [it for _, it in group]))
    ]


def git(folder: Path, *arguments: str) -> str:
    """Run git in `folder` and return what it prints."""
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, f"git {' '.join(arguments)}: {result.stderr}"
    return result.stdout


def commit(folder: Path, message: str) -> None:
    """Commit everything that is in `folder`."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--allow-empty", "--message", message)


class History:
    """The clone in `folder`, and copies of its versions. Test processes share them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = self.once("template", self._clone)

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder `name`, made by the first process that wants it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                part = path.with_name(f"{path.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                make(part)
                part.rename(path)
        return path

    def _clone(self, folder: Path) -> None:
        source = ["--no-local", str(ROOT)]  # packed: Copier clones it for each update
        git(ROOT, "clone", "--quiet", "--no-tags", "--no-checkout", *source, str(folder))
        listed = releases(ROOT)
        assert make_tags(folder, listed) == [release.version for release in listed]
        self.put(folder, NEWEST)

    @staticmethod
    def put(folder: Path, version: str) -> None:
        """Commit what Copier reads of the working tree in the clone `folder` as `version`."""
        with without_git(ROOT) as tree:
            shutil.copytree(tree, folder, symlinks=True, dirs_exist_ok=True)
        shutil.copy2(ROOT / ".gitattributes", folder)
        git(folder, "add", "--force", "template")  # its .gitignore files are those of projects
        (folder / "hooks").mkdir(exist_ok=True)
        shutil.copy2(ROOT / "hooks" / "carry_over.py", folder / "hooks")
        commit(folder, "The working tree")
        git(folder, "tag", version)

    def copied(self, version: str, variant: str, **answers: str) -> Path:
        """A project as it is copied from `version`, committed; to read only.

        Its Python package is `app`, which an update from any release keeps.
        """
        if "-python" in variant and Version(version) >= FIRST_WITH_PACKAGE:
            answers = {"package_name": "app", **answers}

        def make(folder: Path) -> None:
            copy(self.template, folder, version, answers_of(variant) | answers)

        return self.once(f"copies/{version}/{','.join([variant, *answers.values()])}", make)

    def project(self, folder: Path, version: str, variant: str, **answers: str) -> Path:
        """A project like that, for one test."""
        source = self.copied(version, variant, **answers)
        return Path(shutil.copytree(source, folder, symlinks=True))


def copy(template: Path, folder: Path, version: str, answers: Mapping[str, str]) -> None:
    """Copy a project from a version of `template`, without trust, and commit it."""
    folder.mkdir()
    run_copy(
        str(template),
        folder,
        data=dict(answers),
        vcs_ref=version,
        defaults=True,
        quiet=True,
        settings=Settings(),
    )
    git(folder, "init", "--quiet")
    commit(folder, f"Copied from {version}")


def update(project: Path, version: str = NEWEST, **answers: str) -> None:
    """Update a project as `copier update --defaults` does, without trust, and stage nothing."""
    run_update(
        project,
        data=answers,
        vcs_ref=version,
        defaults=True,
        overwrite=True,
        quiet=True,
        settings=Settings(),
    )


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that the test processes of one run have in common."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "updates"
