"""The releases: hooks/releases.txt has the version and the commit of each, oldest first.

A clone may lack the tags, and a tag can be moved where nobody sees it. So the list is what counts,
and tags are made from it. A commit cannot name itself: the one after it adds it to the list.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from hooks import snapshots, weights
from hooks.check import check
from hooks.committed import CommitError, git, read_or_refuse, resolve
from hooks.without_tests import commit_without_tests

LIST = Path("hooks") / "releases.txt"
CHANGELOG = Path("CHANGELOG.md")
NEXT = "next"  # the heading of what is not released yet
PARTS = ("You have to", "Added", "Fixed", "Faster")  # the parts of a section, in their order
LINE = re.compile(r"(\S+) ([0-9a-f]{40})")


class ReleaseError(Exception):
    """Something keeps a release from being made; the text is one line that says what to do."""


@dataclass(frozen=True)
class Release:
    """A version of the template, and the commit that is it."""

    version: str
    commit: str

    def __str__(self) -> str:
        """The line of the list."""
        return f"{self.version} {self.commit}"


def releases(root: Path) -> list[Release]:
    """The releases of the template in `root`, oldest first; none where there is no list.

    Raises ReleaseError when the list is not what it should be.
    """
    path = root / LIST
    found: list[Release] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines() if path.exists() else [], 1):
        place = f"{LIST.as_posix()}:{number}"
        if not (match := LINE.fullmatch(line)):
            raise ReleaseError(f"{place} is not a version, a space and the 40 digits of a commit")
        try:
            found.append(Release(next_version(match[1], found), match[2]))
        except ReleaseError as error:
            raise ReleaseError(f"{place}: {error}") from error
    return found


def next_version(text: str, before: list[Release]) -> str:
    """`text`, when it may follow the releases `before`. Raises ReleaseError when it may not."""
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ReleaseError(f"{text!r} is not a PEP 440 version: use one like 1.2.3") from error
    if str(version) != text:
        raise ReleaseError(f"{text!r} is not how PEP 440 writes it: use {version}")
    if version.local or version.epoch or version.dev is not None:
        raise ReleaseError(f"{text!r} is not for a release: use one like 1.2.3 or 1.2.3rc1")
    if before and version <= Version(before[-1].version):
        raise ReleaseError(f"{text} is not greater than {before[-1].version}: use a greater one")
    return text


def section(root: Path, version: str) -> str:
    """What CHANGELOG.md says about `version`. Raises ReleaseError when that is nothing."""
    path = root / CHANGELOG
    for part in (path.read_text("utf-8") if path.exists() else "").split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        if heading.strip() == version and text.strip():
            return text.strip()
    raise ReleaseError(
        f"{CHANGELOG} has no section {version}: write '## {NEXT}' there, and below it what"
        " changes in a project"
    )


def commit_of(root: Path, tag: str) -> str | None:
    """The commit that a tag is on, or None where there is no such tag."""
    asked = ("rev-parse", "-q", "--verify", f"refs/tags/{tag}^{{commit}}")
    return git(root, *asked).stdout.decode().strip() or None


def last_here(root: Path) -> Release | None:
    """The last release whose commit is in this clone; None when there is none, or no Git."""
    for release in reversed(releases(root)):
        if (root / ".git").exists() and git(root, "cat-file", "-e", release.commit).returncode == 0:
            return release
    return None


def sections(root: Path, version: str) -> tuple[str, str]:
    """The heading under which CHANGELOG.md has `version`, NEXT before its release, and the text.

    Raises ReleaseError when there is none.
    """
    for heading in (version, NEXT):
        with suppress(ReleaseError):
            return heading, section(root, heading)
    return version, section(root, version)


def unreleased(root: Path) -> str:
    """Return the section NEXT of CHANGELOG.md, which is empty right after a release."""
    with suppress(ReleaseError):
        return section(root, NEXT)
    return ""


def check_parts(text: str) -> None:
    """Raise ReleaseError unless a section has its entries in PARTS, in that order."""
    introduction, *parts = re.split(r"(?m)^### ", text)
    names = [part.partition("\n")[0] for part in parts]
    if not names or names != [name for name in PARTS if name in names]:
        wanted = ", ".join(f"'### {name}'" for name in PARTS)
        raise ReleaseError(f"{CHANGELOG} needs parts in this order, without empty ones: {wanted}")
    if re.search(r"(?m)^- ", introduction):
        raise ReleaseError(f"{CHANGELOG} has an entry before '### {names[0]}': move it to a part")
    for name, part in zip(names, parts, strict=True):
        if not re.search(r"(?m)^- ", part):
            raise ReleaseError(f"{CHANGELOG} has no entry below '### {name}': delete the heading")


def make_tags(root: Path, listed: list[Release]) -> list[str]:
    """Tag each release that has no tag yet, and return their versions.

    Raises ReleaseError, before any is made, when a tag is elsewhere than the list says or a commit
    is not here: a tag is never moved, because projects were copied from where it is.
    """
    missing = []
    for release in listed:
        try:
            resolve(root, release.commit)
        except CommitError as error:
            raise ReleaseError(f"{release.version}: {error}") from error
        there = commit_of(root, release.version)
        if there is None:
            missing.append(release)
        elif there != release.commit:
            raise ReleaseError(
                f"the tag {release.version} is on {there[:10]}, and {LIST.as_posix()} says"
                f" {release.commit[:10]}: tags never move, so delete the one that is wrong yourself"
            )
    for release in missing:
        read_or_refuse(root, "tag", "--", release.version, release.commit)
    return [release.version for release in missing]


def ready(root: Path, version: str, listed: list[Release]) -> weights.Weights:
    """Return the weights of the last commit. Raise ReleaseError when it cannot be `version`."""
    next_version(version, listed)
    if read_or_refuse(root, "status", "--porcelain"):
        raise ReleaseError("something is not committed: a release is a commit, so commit it first")
    if commit_of(root, version):
        raise ReleaseError(f"there is a tag {version} already: use another version")
    _, text = sections(root, version)
    check_parts(text)
    last = last_here(root)
    if listed and last != listed[-1]:
        raise ReleaseError(f"{listed[-1].version} is not in this clone: git fetch --unshallow")
    findings = check(root, against=last.commit if last else None)
    if findings:
        raise ReleaseError(f"findings: {len(findings)}; run python -m hooks check")
    if snapshots.recorded(root) != snapshots.rendered(root):
        raise ReleaseError("the snapshots are not as rendered: run python -m hooks snapshots")
    now = weights.weigh(root)
    _, before = weights.read_last(root)
    for finding in weights.check_weights(before, now, text):
        raise ReleaseError(f"{finding.file} {finding.message}")
    return now


def make_release(root: Path, version: str) -> Release:
    """Make the release `version` of the last commit, and return it.

    First the heading NEXT of CHANGELOG.md becomes `version`. The tag is on a commit beside the
    branch that lacks the tests; it has the section as its message, and is signed where Git has
    `user.signingKey`. The next commit of the branch adds the release to the list and writes the
    weights of its rooms. It is a merge with that commit, so that every clone has it. Raises
    ReleaseError, before anything is made, when something is not ready for a release.
    """
    listed = releases(root)
    rooms = ready(root, version, listed)
    heading, text = sections(root, version)
    if heading == NEXT:
        path = root / CHANGELOG
        lines = path.read_text("utf-8").replace(f"\n## {NEXT}\n", f"\n## {version}\n", 1)
        path.write_text(lines, "utf-8", newline="\n")
        read_or_refuse(root, "commit", "--quiet", f"--message=Release {version}", "--all")
    make_tags(root, listed)
    release = Release(version, commit_without_tests(root, version))
    is_signed = git(root, "config", "user.signingKey").stdout.strip()
    kind = "--sign" if is_signed else "--annotate"
    message = f"--message={version}\n\n{text}\n"
    # Else Git takes headings of the section for comments.
    clean = "--cleanup=verbatim"
    read_or_refuse(root, "tag", kind, clean, message, "--", version, release.commit)
    read_or_refuse(root, "merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", release.commit)
    lines = "".join(f"{release}\n" for release in [*listed, release])
    (root / LIST).write_text(lines, "utf-8", newline="\n")
    weights.write_last(root, version, rooms)
    read_or_refuse(root, "add", "--", LIST.as_posix(), weights.FILE.as_posix())
    read_or_refuse(root, "commit", "--quiet", f"--message=Note release {version}")
    return release
