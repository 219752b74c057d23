"""The weight of rooms: how tokens are counted, and growth that CHANGELOG has to explain."""

from pathlib import Path

import pytest

from hooks import releases, weights
from hooks.weights import Weights
from tests.conftest import ROOT
from tests.template.test_check import PROJECT, SOUND, build, keep_variants
from tests.template.test_hooks import Hooks, hooks

__all__ = ["hooks"]  # a fixture

PYTHON = '''\
"""A module."""

# A comment.
def double(number: int) -> int:
    """Return twice a number."""
    name = "a 'string' # of several words"
    text = """and
    lines"""

    return 2 * number
'''
TYPESCRIPT = """\
// A comment.
/** Returns twice a number. */
export function double(number: number): number {
  const name = 'a "string" // of several words'
  const text = `and
  lines`

  return /[/*]`/.test(text) ? number / 2 / 1 : 2 * number
}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small template with a room `store`, which is the current folder."""
    keep_variants(monkeypatch, "strands-python")
    root = build(tmp_path / "template", SOUND)
    monkeypatch.chdir(root)
    (root / "hooks").mkdir()
    write(root, "store/base.py", "x = 1\n" * 20)
    return root


def write(root: Path, path: str, text: str) -> None:
    target = root / PROJECT / "src" / "my_agent" / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"), [("a.py", PYTHON, 21), ("a.ts", TYPESCRIPT, 37)]
)
def test_comments_docstrings_and_blanks_weigh_nothing(
    name: str, text: str, expected: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert weights.tokens(tmp_path / name) == expected


def test_joined_statements_weigh_no_less(tmp_path: Path) -> None:
    apart, joined = tmp_path / "apart.py", tmp_path / "joined.py"
    apart.write_text("a = 1\nb = 2\n")
    joined.write_text("a, b = 1, 2\n")
    assert weights.tokens(joined) >= weights.tokens(apart)


@pytest.mark.parametrize("package", ["src", "src/app", "src/my_agent"])
def test_a_room_has_the_same_name_in_each_layout(package: str, tmp_path: Path) -> None:
    for name in ("main.py", "harness/turn.py", "harness/store/base.py", "page/marked.min.js"):
        path = tmp_path / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    files = weights.weigh_files(tmp_path)
    assert sorted(weights.room_of(path) for path in files) == ["harness", "src", "store"]
    assert set(files.values()) == {3}


def test_check_prints_the_tokens_of_each_room(hooks: Hooks, root: Path) -> None:
    weights.write_last(root, "0.1.0", {"old": {"strands-python": 1}})
    (root / "CHANGELOG.md").write_text("# What changes\n\n## next\n\n- `src/` and `store/`.\n")
    result = hooks("check")
    assert result.code == 0, result
    first, targets, source, store, old, habits, last = result.out.splitlines()
    assert first == "tokens of each room, and the change since 0.1.0:"
    assert targets.split()[0] == "strands-python"
    assert source.split() == ["src", *["8", "new"] * 4]
    assert store.split() == ["store", *["60", "new"] * 4]
    assert old.split() == ["old", "gone"]
    assert habits == "habits of translated English: 0"
    assert last == "no findings"


@pytest.mark.parametrize(
    ("lines", "sentence", "is_fine"),
    [
        (21, "", True),
        (22, "", False),
        (22, "- **Sessions**: `store/` has more checks.", True),
        (22, "- **Sessions**: `src/app/store.py` has more checks.", False),
        (22, "- `store/base` moved.", False),
        (19, "", True),
    ],
)
def test_a_room_that_grows_needs_a_sentence(
    lines: int, sentence: str, is_fine: bool, hooks: Hooks, root: Path
) -> None:
    weights.write_last(root, "0.1.0", weights.weigh(root))
    write(root, "store/base.py", "x = 1\n" * lines)
    (root / "CHANGELOG.md").write_text(f"# What changes\n\n## next\n\nRead it.\n\n{sentence}\n")
    result = hooks("check")
    if is_fine:
        assert result.code == 0, result
    else:
        result.refused(1, "findings: 1")
        assert "weight CHANGELOG.md does not say why store/ weighs more (strands-p" in result.out


def test_a_new_room_needs_a_sentence() -> None:
    before: Weights = {"src": {"strands-python": 8}}
    now: Weights = {**before, "auth": {"strands-python": 900}}
    (finding,) = weights.check_weights(before, now, "- Callers.")
    assert "auth/ weighs more (strands-python 900 tokens)" in finding.message
    assert list(weights.check_weights(before, now, "- Callers have `auth/`.")) == []


@pytest.mark.full
def test_the_changelog_names_each_room_that_grows() -> None:
    _, before = weights.read_last(ROOT)
    text = releases.unreleased(ROOT)
    assert list(weights.check_weights(before, weights.weigh(ROOT), text)) == []


def test_the_weights_are_those_of_the_last_release() -> None:
    release, rooms = weights.read_last(ROOT)
    assert release == releases.releases(ROOT)[-1].version
    assert {"src", "store", "memory"} < rooms.keys()
