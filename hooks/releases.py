"""The releases: hooks/releases.txt has the version and the commit of each, oldest first.

A clone may lack tags, and a tag can be moved unnoticed. So the list is authoritative, and tags are
created from it. A commit cannot contain its own id: the next commit adds it to the list.
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
NEXT = "next"  # the heading of unreleased changes
PARTS = ("You have to", "Added", "Fixed", "Faster")  # the parts of a section, in order
LINE = re.compile(r"(\S+) ([0-9a-f]{40})")


class ReleaseError(Exception):
    """A release cannot be made. The text is one line with the next step."""


@dataclass(frozen=True)
class Release:
    """A version of the template, and its commit."""

    version: str
    commit: str

    def __str__(self) -> str:
        """Return the line of the list."""
        return f"{self.version} {self.commit}"


def releases(root: Path) -> list[Release]:
    """Return the releases of the template in `root`, oldest first; empty without a list.

    Raises ReleaseError if the list is invalid.
    """
    path = root / LIST
    listed: list[Release] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines() if path.exists() else [], 1):
        place = f"{LIST.as_posix()}:{number}"
        if not (match := LINE.fullmatch(line)):
            raise ReleaseError(f"{place} is not a version, a space and the 40 digits of a commit")
        try:
            listed.append(Release(next_version(match[1], listed), match[2]))
        except ReleaseError as error:
            raise ReleaseError(f"{place}: {error}") from error
    return listed


def next_version(text: str, before: list[Release]) -> str:
    """Return `text` if it may follow the releases `before`. Raises ReleaseError otherwise."""
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise ReleaseError(f"{text!r} is not a PEP 440 version: use one like 1.2.3") from error
    if str(version) != text:
        raise ReleaseError(f"{text!r} is not in the normal form of PEP 440: use {version}")
    if version.local or version.epoch or version.dev is not None:
        raise ReleaseError(f"{text!r} is not for a release: use one like 1.2.3 or 1.2.3rc1")
    if before and version <= Version(before[-1].version):
        raise ReleaseError(f"{text} is not greater than {before[-1].version}: use a higher number")
    return text


def section(root: Path, version: str) -> str:
    """Return the section `version` of CHANGELOG.md. Raises ReleaseError if it has no text."""
    path = root / CHANGELOG
    for part in (path.read_text("utf-8") if path.exists() else "").split("\n## ")[1:]:
        heading, _, text = part.partition("\n")
        if heading.strip() == version and text.strip():
            return text.strip()
    raise ReleaseError(
        f"{CHANGELOG} has no section {version}: add '## {NEXT}', and list the changes in a"
        " project below it"
    )


def commit_of(root: Path, tag: str) -> str | None:
    """Return the commit of a tag, or None without such a tag."""
    command = ("rev-parse", "-q", "--verify", f"refs/tags/{tag}^{{commit}}")
    return git(root, *command).stdout.decode().strip() or None


def last_here(root: Path) -> Release | None:
    """Return the last release whose commit is in this clone, or None."""
    for release in reversed(releases(root)):
        if (root / ".git").exists() and git(root, "cat-file", "-e", release.commit).returncode == 0:
            return release
    return None


def sections(root: Path, version: str) -> tuple[str, str]:
    """Return the heading and the text of `version` in CHANGELOG.md: NEXT before its release.

    Raises ReleaseError if neither section exists.
    """
    for heading in (version, NEXT):
        with suppress(ReleaseError):
            return heading, section(root, heading)
    return version, section(root, version)


def unreleased(root: Path) -> str:
    """Return the section NEXT of CHANGELOG.md; empty directly after a release."""
    with suppress(ReleaseError):
        return section(root, NEXT)
    return ""


def check_parts(text: str) -> None:
    """Raise ReleaseError unless the entries of a section are in PARTS, in that order."""
    introduction, *parts = re.split(r"(?m)^### ", text)
    names = [part.partition("\n")[0] for part in parts]
    if not names or names != [name for name in PARTS if name in names]:
        headings = ", ".join(f"'### {name}'" for name in PARTS)
        raise ReleaseError(f"{CHANGELOG} needs parts in this order, none empty: {headings}")
    if re.search(r"(?m)^- ", introduction):
        raise ReleaseError(f"{CHANGELOG} has an entry before '### {names[0]}': move it to a part")
    for name, part in zip(names, parts, strict=True):
        if not re.search(r"(?m)^- ", part):
            raise ReleaseError(f"{CHANGELOG} has no entry below '### {name}': delete the heading")


def make_tags(root: Path, listed: list[Release]) -> list[str]:
    """Tag each release without a tag, and return the versions.

    A tag never moves, because projects were copied from its commit. So this raises ReleaseError,
    before it creates a tag, if a tag contradicts the list or a commit is not in this clone.
    """
    missing = []
    for release in listed:
        try:
            resolve(root, release.commit)
        except CommitError as error:
            raise ReleaseError(f"{release.version}: {error}") from error
        commit = commit_of(root, release.version)
        if commit is None:
            missing.append(release)
        elif commit != release.commit:
            raise ReleaseError(
                f"the tag {release.version} is on {commit[:10]}, but {LIST.as_posix()} has"
                f" {release.commit[:10]}: tags never move, so delete the wrong tag yourself"
            )
    for release in missing:
        read_or_refuse(root, "tag", "--", release.version, release.commit)
    return [release.version for release in missing]


def ready(root: Path, version: str, listed: list[Release]) -> weights.Weights:
    """Return the weights of the last commit. Raise ReleaseError if it cannot become `version`."""
    next_version(version, listed)
    if read_or_refuse(root, "status", "--porcelain"):
        raise ReleaseError("there are uncommitted changes: commit them first")
    if commit_of(root, version):
        raise ReleaseError(f"the tag {version} exists already: use another version")
    _, text = sections(root, version)
    check_parts(text)
    last = last_here(root)
    if listed and last != listed[-1]:
        raise ReleaseError(f"{listed[-1].version} is not in this clone: git fetch --unshallow")
    findings = check(root, against=last.commit if last else None)
    if findings:
        raise ReleaseError(f"findings: {len(findings)}; run python -m hooks check")
    if snapshots.recorded(root) != snapshots.rendered(root):
        raise ReleaseError("the snapshots differ from the renders: run python -m hooks snapshots")
    now = weights.weigh(root)
    _, before = weights.read_last(root)
    for finding in weights.check_weights(before, now, text):
        raise ReleaseError(f"{finding.file} {finding.message}")
    return now


def make_release(root: Path, version: str) -> Release:
    """Release the last commit as `version`, and return the release.

    First renames the heading NEXT of CHANGELOG.md to `version`. Then tags a commit beside the
    branch, which lacks the tests. The tag's message is the section; Git signs the tag if it has
    `user.signingKey`. The next commit of the branch adds the release to the list and writes the
    weights of its rooms. It merges the tagged commit, so that every clone has it. Raises
    ReleaseError, before any change, if the last commit is not ready for a release.
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
    # By default Git would remove the headings of the section as comments.
    clean = "--cleanup=verbatim"
    read_or_refuse(root, "tag", kind, clean, message, "--", version, release.commit)
    read_or_refuse(root, "merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", release.commit)
    lines = "".join(f"{release}\n" for release in [*listed, release])
    (root / LIST).write_text(lines, "utf-8", newline="\n")
    weights.write_last(root, version, rooms)
    read_or_refuse(root, "add", "--", LIST.as_posix(), weights.FILE.as_posix())
    read_or_refuse(root, "commit", "--quiet", f"--message=Note release {version}")
    return release
