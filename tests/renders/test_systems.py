"""Systems that are not here, imitated: Windows without what it lacks, cp1252, CRLF, folders."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hooks.rendering import files_of, without_git
from hooks.variants import PROJECT_NAME, TARGETS
from tests.conftest import HERE, ROOT
from tests.first_run import agent, ask, chat, run, serving
from tests.installed import (
    NODE,
    NPM,
    environment,
    installed,
    link_environment,
    rendered,
    target_of,
    union_manifest,
    uv,
)
from tests.updates.commands import copier
from tests.updates.edits import OUR_PROMPT, PROMPT
from tests.updates.history import commit, git
from tests.windows import NODE as NODE_OF_WINDOWS
from tests.windows import NOT_TRIED
from tests.windows import PYTHON as PYTHON_OF_WINDOWS

SLOW, FULL = pytest.mark.slow, pytest.mark.full
CP1252 = {
    "PYTHONIOENCODING": "cp1252",
    "PYTHONUTF8": "0",
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
}
WINDOWS = PYTHON_OF_WINDOWS | NODE_OF_WINDOWS | CP1252
# With one of them everything else is imported as usual; these have all modules of a language.
LARGE = [f"{target}{options}" for target in TARGETS for options in ("+valkey+agentcore", "+mcp")]
PYTHONS, SYSTEMS = ("3.12", "3.13", "3.14"), ("linux", "macos", "windows")
# For these there is no wheel: uv builds them, with the compiler of Xcode.
BUILT = {("strands-python", "3.14", "macos"): ["watchdog"]}
# What Windows allows in no name, and the names that it keeps for devices.
FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$')
DEVICE = re.compile(r"(?i)(aux|con|nul|prn|com[0-9]|lpt[0-9])(\..*)?")
# Its paths end at 260 characters; a clone is in a folder, and Copier makes others.
MOST_CHARACTERS = 150


def of_targets(*usual: str) -> list[object]:
    return [pytest.param(name, marks=[] if name in usual else FULL) for name in TARGETS]


def own(target: str, folder: Path) -> Path:
    """A render that a test may change, in `folder`."""
    shutil.copytree(rendered(target), folder)
    link_environment(folder, environment(target_of(target)))
    return folder


@pytest.mark.full
@SLOW
@pytest.mark.parametrize("target", of_targets("strands-python", "vercel-typescript"))
def test_chat_and_serve_need_nothing_that_windows_lacks(target: str) -> None:
    project = installed(target)
    chat(project, **WINDOWS)
    with serving(project, **WINDOWS) as (process, port):
        ask(port)
        process.send_signal(signal.SIGINT)  # what Ctrl-C is, also on Windows
        assert process.wait(60) == 0


def test_the_simulated_system_lacks_its_functions() -> None:
    script = """
import asyncio, os, signal
async def main():
    try: asyncio.get_running_loop().add_signal_handler(signal.SIGINT, print)
    except NotImplementedError: print("no handler")
asyncio.run(main())
try: import readline
except ImportError: print("no readline")
print(hasattr(os, "fork"), hasattr(signal, "SIGHUP"))
"""
    said = run(HERE, sys.executable, "-c", script, **PYTHON_OF_WINDOWS)
    assert said.split("\n")[:3] == ["no handler", "no readline", "False False"]
    script = (
        "try { fs.rmSync(process.cwd()) } catch ({ code }) { console.log(process.platform, code) }"
    )
    assert run(HERE, str(NODE), "-e", script, **NODE_OF_WINDOWS) == "win32 EBUSY\n"


@SLOW
def test_a_reload_on_windows_hands_nothing_over(tmp_path: Path) -> None:
    project = own("strands-typescript", tmp_path / "project")
    (project / "src/harness/http/serve.ts").write_text(
        """export const serve = () => {
  console.log('Handed over:', process.env.RELOAD_FD === '3')
  process.kill(process.ppid, 'SIGINT')
}
""",
        "utf-8",
    )
    for variables, is_given in (({}, "true"), (NODE_OF_WINDOWS, "false")):
        said = run(project, *agent(project), "serve", "--reload", **variables)
        assert f"Handed over: {is_given}" in said


@pytest.mark.full
@SLOW
@pytest.mark.parametrize("target", of_targets("strands-python", "vercel-typescript"))
def test_an_env_file_of_notepad_is_read_and_one_of_powershell_refused(
    target: str, tmp_path: Path
) -> None:
    project = installed(target)
    (tmp_path / "src").symlink_to(project / "src")
    (tmp_path / ".venv").symlink_to(project / ".venv")
    command = agent(project)
    if target.endswith("-typescript"):
        command[-1] = str(project / "src" / "main.ts")
    env, text = tmp_path / ".env", "PORT=70000\r\nMAX_TURNS=none\r\n"

    def found() -> set[str]:
        done = subprocess.run([*command, "check", "--json"], cwd=tmp_path, capture_output=True)
        return {finding["id"] for finding in json.loads(done.stdout)["diagnostics"]}

    env.write_text(text, "utf-8-sig", newline="")
    assert found() == {"SET-PORT", "SET-MAX_TURNS"}
    env.write_text(text, "utf-16", newline="")
    assert found() == {"SET-ENV-FILE"}


@pytest.mark.full
@SLOW
@pytest.mark.parametrize("target", of_targets("strands-python", "vercel-typescript"))
def test_a_project_may_be_in_a_folder_of_any_name(target: str, tmp_path: Path) -> None:
    last = "%20 漢" if target.endswith("-typescript") else "back\\slash"  # which Node refuses
    project = own(target, tmp_path / "Émile's files" / last)
    chat(project)
    assert "0 errors" in run(project, *agent(project), "check")
    with serving(project) as (_, port):
        ask(port)


@FULL
@pytest.mark.parametrize(
    "variant",
    [
        "strands-python",
        "strands-typescript",
        *(
            f"{target}{option}"
            for target in ("strands-python", "vercel-typescript")
            for option in ("+evals", "+custom")
        ),
    ],
)
def test_a_checkout_with_crlf_works_as_one_with_lf(variant: str, tmp_path: Path) -> None:
    project = own(variant, tmp_path / "project")
    for path in files_of(project):
        if not path.is_symlink():
            content = (project / path).read_bytes()
            (project / path).write_bytes(content.replace(b"\n", b"\r\n"))
    chat(project)
    run(project, *agent(project), "check")
    if "evals" in variant:
        run(project, *agent(project), "eval")
    if variant.endswith("-typescript") or "typescript+" in variant:
        run(project, *NPM, "run", "lint")
        run(project, *NPM, "test")
    else:
        python = str(project / ".venv" / "bin" / "python")
        ruff = str(environment(target_of(variant)) / ".venv" / "bin" / "ruff")
        run(project, ruff, "check", "--no-cache")
        run(project, ruff, "format", "--check", "--no-cache")
        run(project, python, "-m", "pytest", "-q")


@pytest.mark.full
@SLOW
def test_a_copy_has_lf_where_git_converts_and_an_update_has_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    with without_git(ROOT) as tree:
        shutil.copytree(tree, template)
    shutil.copy2(ROOT / ".gitattributes", template)
    git(template, "init", "--quiet")
    for version in ("1", "2"):
        (path,) = template.glob("template/python/*strands*/src/*/agent.py")
        path.write_text(path.read_text("utf-8") + f"# version {version}\n", "utf-8")
        commit(template, version)
        git(template, "tag", version)
    (tmp_path / "gitconfig").write_text("[core]\nautocrlf = true\n", "utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))  # as Git for Windows
    project = tmp_path / "project"
    copier(
        "copy",
        "--defaults",
        "-d",
        f"project_name={PROJECT_NAME}",
        "-r",
        "1",
        template,
        project,
        cwd=tmp_path,
    )
    with_crlf = [path for path in files_of(project) if b"\r" in (project / path).read_bytes()]
    assert with_crlf == []

    git(project, "init", "--quiet")
    commit(project, "Copied")
    for name in git(project, "ls-files").splitlines():
        (project / name).unlink()
    git(project, "checkout", "--quiet", ".")
    agent_file = project / "src" / "my_agent" / "agent.py"
    assert b"\r" not in agent_file.read_bytes()  # by the project's .gitattributes
    mended = agent_file.read_bytes().replace(PROMPT.encode(), OUR_PROMPT.encode())
    agent_file.write_bytes(mended)
    commit(project, "Another prompt")
    copier("update", "--defaults", cwd=project)
    text = agent_file.read_bytes()
    assert OUR_PROMPT.encode() in text
    assert text.splitlines()[-1] == b"# version 2"
    changed = git(project, "diff", "--name-only").splitlines()
    assert changed == [".copier-answers.yml", "src/my_agent/agent.py"]
    assert b"<<<<<<<" not in text


def test_windows_and_macos_can_have_every_path() -> None:
    paths = git(ROOT, "-c", "core.quotePath=off", "ls-files").splitlines()
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    for path in (*paths, *folders):
        names = Path(path).parts
        assert not any(FORBIDDEN.search(name) or DEVICE.fullmatch(name) for name in names), path
        assert len(path) <= MOST_CHARACTERS, path
        assert path.isascii()
    lower = [path.lower() for path in (*paths, *folders)]
    assert len(lower) == len(set(lower)), "two paths differ by case only"
    modes = git(ROOT, "ls-files", "--stage").splitlines()
    assert not any(mode.startswith("120000") for mode in modes), "a link"


@pytest.mark.full
@SLOW
def test_the_claims_about_windows_hold() -> None:
    """Every module that Windows cannot import is listed, and nothing that is gone."""
    assert [name for name in NOT_TRIED if not (HERE / name).exists()] == []
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'termios', 'pty', 'resource')))\n"
    )
    script += (
        "import pytest; sys.exit(pytest.main(['-n0', '--collect-only', '-qq', '-m', 'not full']))"
    )
    said = run(ROOT, sys.executable, "-c", script, LIKE_WINDOWS="1")
    assert all(name in said for name in NOT_TRIED), said


@FULL
@pytest.mark.parametrize("platform", ["win32", "darwin"])
@pytest.mark.parametrize("variant", [name for name in LARGE if "python" in name])
def test_the_type_checker_of_a_render_finds_nothing_on(platform: str, variant: str) -> None:
    project, cache = installed(variant), environment(target_of(variant)) / f".mypy_cache-{platform}"
    python = str(project / ".venv" / "bin" / "python")
    run(project, python, "-m", "mypy", "--platform", platform, "--cache-dir", str(cache))


@FULL
@pytest.mark.parametrize(
    "variant", ["strands-python", *(name for name in LARGE if "python" in name)]
)
def test_a_render_depends_on_no_encoding_of_the_system(variant: str) -> None:
    project = installed(variant)
    strict = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    tests = ("-m", "pytest", "-q", "-W", "error::EncodingWarning")
    run(project, str(project / ".venv" / "bin" / "python"), *strict, *tests)


@SLOW
@FULL
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("target", [target for target in TARGETS if "python" in target])
def test_every_dependency_is_built_for(target: str, python: str, system: str) -> None:
    _, manifest = union_manifest(target)
    wanted = "\n".join(tomllib.loads(manifest)["project"]["dependencies"])
    ready = [f"--no-binary={name}" for name in BUILT.get((target, python, system), [])]
    for_one = ("--python-version", python, "--python-platform", system, "--only-binary", ":all:")
    command = [*uv(), "pip", "compile", "-q", "--no-header", *for_one, *ready, "-"]
    run(ROOT, *command, typed=wanted)


@SLOW
def test_the_tests_of_a_render_pass_on_windows() -> None:
    command = [str(NODE), "--test", "tests/agent.test.ts"]
    run(installed("strands-typescript"), *command, **NODE_OF_WINDOWS)
