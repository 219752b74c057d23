"""The folders of installed renders, and the environments that they share."""

from pathlib import Path

import pytest

from tests.installed import mirror, union_of_packages, union_of_projects


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_that_are_no_longer_rendered_go_and_environments_stay(tmp_path: Path) -> None:
    fresh, project = tmp_path / "fresh", tmp_path / "project"
    write(fresh / "a.py", "new")
    write(project / "a.py", "old")
    write(project / "deep" / "stale.py", "old")
    write(project / ".venv" / "bin" / "python", "kept")
    write(project / "uv.lock", "kept")
    write(project / "node_modules" / "x.js", "kept")
    mirror(fresh, project)
    files = {p.relative_to(project).as_posix() for p in project.rglob("*") if p.is_file()}
    assert files == {"a.py", ".venv/bin/python", "uv.lock", "node_modules/x.js"}
    assert (project / "a.py").read_text() == "new"


def test_a_file_that_did_not_change_is_not_written(tmp_path: Path) -> None:
    fresh, project = tmp_path / "fresh", tmp_path / "project"
    write(fresh / "a.py", "same")
    write(project / "a.py", "same")
    before = (project / "a.py").stat().st_mtime_ns
    mirror(fresh, project)
    assert (project / "a.py").stat().st_mtime_ns == before


def test_a_changed_mode_is_carried_over(tmp_path: Path) -> None:
    fresh, project = tmp_path / "fresh", tmp_path / "project"
    write(fresh / "run", "same")
    write(project / "run", "same")
    (fresh / "run").chmod(0o755)
    mirror(fresh, project)
    assert (project / "run").stat().st_mode & 0o777 == 0o755


def test_an_environment_satisfies_each_of_its_renders() -> None:
    manifests = [
        {
            "project": {"requires-python": ">=3.11", "dependencies": ["a>=1", wanted]},
            "dependency-groups": {"dev": ["c"]},
        }
        for wanted in ("b>=1", "b>=2")
    ]
    text = union_of_projects(manifests)
    assert all(f'"{wanted}"' in text for wanted in ("a>=1", "b>=1", "b>=2", "c"))


def test_two_versions_of_one_package_cannot_share_an_environment() -> None:
    one, two = {"dependencies": {"a": "^1"}}, {"devDependencies": {"a": "^2"}}
    assert '"a": "^1"' in union_of_packages([one, one])
    with pytest.raises(ValueError, match="a is wanted as"):
        union_of_packages([one, two])
