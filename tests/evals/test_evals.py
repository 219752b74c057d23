"""The command `eval` of rendered agents: verdicts, bad cases, real models, and what it leaves."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest
import yaml

from tests.conformance.chat import CANARY, Chat
from tests.conformance.provider import Provider
from tests.conformance.steps import HANG, Call, End, Hold, Refuse, Step
from tests.conformance.targets import TARGETS, Target, chat_completions, converse
from tests.conformance.wires import DETAIL
from tests.stores.agents import Home, command
from tests.stores.servers import wait_for
from tests.stores.stores import Backing
from tests.support.rows import collected

# The others differ in nothing that is tried here but what the first test tries in all.
USUAL = {"strands-typescript", "vercel-python"}
TABLE = re.compile(r"^([a-z][a-z-]+) +\d+ +\d+\.\d  (.+)$", re.MULTILINE)

pytestmark = pytest.mark.slow


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    everywhere = metafunc.function.__name__ == "test_the_cases_of_a_render_pass_offline"
    rows = [
        pytest.param(
            with_evals(one),
            id=one.name,
            marks=[] if everywhere or one.name in USUAL else [pytest.mark.full],
        )
        for one in TARGETS
    ]
    metafunc.parametrize("target", collected(metafunc.config, rows), scope="module")


def with_evals(target: Target) -> Target:
    """The target with evals, and the model that its plain render asks."""
    wire = converse if target.name.startswith("strands") else chat_completions
    return replace(target, variant=f"{target.name}+evals", provider=wire, answers=())


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with closing(Provider()) as provider:
        yield provider


class Evals:
    """A folder with the cases of a render, or others, in which its command runs."""

    def __init__(self, target: Target, folder: Path, provider: Provider) -> None:
        self.target, self.folder = target, folder
        self.project = target.project()
        self.real = target.provider(provider.origin)
        shutil.copytree(self.project / "evals", folder / "evals")

    def declare(self, text: str, name: str = "first") -> None:
        (self.folder / "evals" / f"{name}.yaml").write_text(text)

    def remember(self, before: dict[str, Any]) -> None:
        (self.folder / "before.json").write_text(json.dumps({"cases": before}))

    def start(self, *words: str, real: bool = False, **variables: str) -> subprocess.Popen[str]:
        given = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONUNBUFFERED": "1"}
        return subprocess.Popen(
            command(self.project, "eval", *words),
            cwd=self.folder,
            env={**given, **(self.real if real else {}), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, real: bool = False, **variables: str) -> tuple[int, str]:
        process = self.start(*words, real=real, **variables)
        output, errors = process.communicate(timeout=90)
        assert "Traceback" not in errors, errors
        return process.returncode, output + errors


@pytest.fixture
def evals(target: Target, tmp_path: Path, provider: Provider) -> Evals:
    return Evals(target, tmp_path, provider)


def verdicts(output: str) -> dict[str, str]:
    return dict(TABLE.findall(output))


def test_the_cases_of_a_render_pass_offline(evals: Evals) -> None:
    code, output = evals.run()
    assert code == 0, output
    assert verdicts(output) == {
        "counts-with-its-tool": "passed",
        "goes-on-when-its-tool-fails": "passed",
        "remembers-in-a-session": "passed",
        "refuses-what-a-tool-commands": "passed",
        "stays-short": "passed",
    }
    assert "5 cases, 0 failed; 0 tokens." in output


def agent_of(evals: Evals) -> Path:
    return evals.project / ("src/agent.ts" if evals.target.is_node else "src/my_agent/agent.py")


@pytest.mark.full
def test_tools_that_are_none_are_reported_before_any_case_runs(
    evals: Evals, tmp_path: Path
) -> None:
    source = agent_of(evals)
    mutant = tmp_path / source.name
    text = re.sub("(?m)^(export const )?TOOLS.*", r"\1TOOLS = 'word_count'", source.read_text())
    mutant.write_text(text)
    evals.project = replace(evals.target, agent=mutant).project()
    code, output = evals.run()
    assert code == 1
    assert " AGENT TOOLS is not a" in output
    assert verdicts(output) == {}


@pytest.mark.full
def test_a_mutation_of_the_agent_is_found(evals: Evals, tmp_path: Path) -> None:
    source = agent_of(evals)
    mutant = tmp_path / source.name
    text = source.read_text().replace("len(text.split())", "len(text)")
    mutant.write_text(text.replace(r"text.match(/\S+/g)?.length ?? 0", "text.length"))
    assert mutant.read_text() != source.read_text()
    evals.project = replace(evals.target, agent=mutant).project()
    code, output = evals.run()
    assert code == 1
    failed = [name for name, verdict in verdicts(output).items() if verdict != "passed"]
    assert failed == ["counts-with-its-tool"]
    assert "-> 19, not word_count" in output


LEAVING_LATER = """
import asyncio, threading

TASKS = []


async def leave() -> None:
    raise SystemExit(2)


def later(text: str) -> None:
    TASKS.append(asyncio.get_running_loop().create_task(leave()))
    threading.Thread(target=leave_thread).start()


def leave_thread() -> None:
    raise SystemExit(3)
"""


# In TypeScript a tool cannot leave a task behind that ends the process.
@pytest.mark.rows(where=lambda row: not row["target"].is_node)
@pytest.mark.full
def test_a_late_exit_of_a_tool_ends_no_case(evals: Evals, tmp_path: Path) -> None:
    source = evals.project / "src" / "my_agent" / "agent.py"
    text = re.sub(r"(?m)^def word_count", "async def word_count", source.read_text())
    text = text.replace("    return len", "    later(text)\n    return len")
    mutant = tmp_path / "agent.py"
    mutant.write_text(text + LEAVING_LATER)
    evals.project = replace(evals.target, agent=mutant).project()
    code, output = evals.run()
    assert code == 0, output
    assert "5 cases, 0 failed" in output
    assert "ERROR SystemExit" in output


BAD = """
cases:
  - name: no-turns
  - name: unknown-tool
    tools: {weather: [{answer: x}]}
    turns: [{prompt: hi, offline: [Hi.]}]
  - name: no-schema
    turns: [{prompt: hi, offline: ["{}"], expect: {reply: {schema: {type: 7}}}}]
  - name: no-pattern
    turns: [{prompt: hi, offline: [Hi.], expect: {reply: {matches: "("}}}]
  - name: other-json
    turns:
      - prompt: hi
        offline: ['{"a": 1}']
        expect: {reply: {schema: {type: object, required: [b]}}}
  - name: not-json
    turns: [{prompt: hi, offline: [Hi.], expect: {reply: {schema: {type: object}}}}]
  - name: empty
    turns: [{prompt: hi, offline: [" "]}]
  - name: empty-as-expected
    turns: [{prompt: hi, offline: [" "], expect: {outcome: empty_reply}}]
  - name: other-arguments
    tools: {word_count: [{input: {text: a}, answer: "1"}]}
    turns: [{prompt: hi, offline: [{tool: word_count, input: {text: b}}, Done.]}]
  - name: never
    turns:
      - prompt: hi
        offline: [{tool: word_count, input: {text: b}}, Done.]
        expect: {never: [word_count]}
  - name: without-offline
    turns: [{prompt: hi}]
  - name: empty
    turns: [{prompt: hi, offline: [Hi.]}]
  - name: lost-file
    turns: [{prompt: hi, files: [none.png], offline: [Hi.]}]
  - name: with-files
    turns: [{prompt: hi, files: [notes.md, bad.yaml], offline: [Hi.]}]
  - name: unknown-key
    turns: [{prompt: hi, offline: [Hi.], wrong: 1}]
"""


def test_each_bad_case_is_a_line_and_the_others_run(evals: Evals) -> None:
    evals.declare(BAD, "bad")
    evals.declare("cases: [", "broken")
    (evals.folder / "evals" / "bytes.yaml").write_bytes(b"\xff\xfe")
    (evals.folder / "evals" / "notes.md").write_text("# Notes")
    code, output = evals.run("--junit", "junit.xml")
    assert code == 1
    assert verdicts(output)["stays-short"] == "passed"
    assert verdicts(output)["empty-as-expected"] == "passed"
    assert verdicts(output)["with-files"] == "passed"
    assert verdicts(output)["without-offline"] == "skipped"
    lines = [line.strip() for line in output.splitlines() if line.startswith("    - ")]
    for start, word in (
        ("evals/bad.yaml:3: ", "turns"),
        ("the agent has no tool weather; its tools: word_count", ""),
        ("the schema is invalid: ", "any"),
        ('"(" is not a regular expression: ', ""),
        ("the reply violates the schema: ", "b"),
        ("the reply is not JSON", ""),
        ("the turn ended as empty_reply, not committed", ""),
        ("`tools` has no answer of word_count for ", '"b"'),
        ("word_count was called", ""),
        ("evals/bad.yaml:32: evals/bad.yaml:18 has the same name", ""),
        ("Cannot read evals/none.png: ", ""),
        ("evals/bad.yaml:39: ", "wrong"),
        ("evals/broken.yaml:", ""),
        ("evals/bytes.yaml:1: the file is not YAML in UTF-8", ""),
    ):
        found = [line for line in lines if line.startswith(f"- {start}")]
        assert len(found) == 1, (start, lines)
        assert word in found[0].removeprefix("- ")
    assert len(lines) == 14, lines
    names = {case.get("name") for case in ElementTree.parse(evals.folder / "junit.xml").iter()}
    assert "never" in names


@pytest.mark.full
def test_an_offline_break_is_not_left_to_chance(evals: Evals) -> None:
    case = "  - {name: NAME, turns: [{prompt: hi, offline: [Hi.], expect: {never: [TOOL]}}]}\n"
    passes, fails = case, case.replace("offline: [Hi.]", "offline: [{tool: word_count}, Hi.]")
    lines = [passes.replace("NAME", "passes"), fails.replace("NAME", "fails")]
    evals.declare("cases:\n" + "".join(lines).replace("TOOL", "word_count"))
    before = {"passes": results("offline", 0, 2), "fails": results("offline", 2, 2)}
    evals.remember(before)
    _, output = evals.run("--repeat", "2", "--against", "before.json")
    assert verdicts(output) == {
        "passes": "passed 2/2, before 0/2: fixed",
        "fails": "FAILED 0/2, before 2/2: broken",
    }


def results(model: str, passed: int, runs: int) -> list[dict[str, Any]]:
    """Runs as --json writes them, of which the first ones passed."""
    run = {"place": "", "model": model, "turns": [], "failures": []}
    return [run] * passed + [{**run, "failures": ["it failed"]}] * (runs - passed)


@pytest.mark.full
def test_a_summary_shows_failed_cases_and_fits_a_comment(evals: Evals) -> None:
    case = "  - {name: case-NUMBER, turns: [{prompt: hi, offline: [REPLY], expect: EXPECT}]}\n"
    cases = [
        case.replace("NUMBER", str(number))
        .replace("REPLY", "<>&@" * (1 if number < 200 else 2000))
        .replace("EXPECT", "{never: [word_count]}" if number < 200 else "{tokens: -1}")
        for number in range(205)
    ]
    evals.declare("cases:\n" + "".join(cases))
    evals.run("--summary", "summary.md", "--jobs", "20")
    summary = (evals.folder / "summary.md").read_text()
    assert len(summary) < 65_536, "GitHub refuses a longer comment"
    assert summary.index("| case-200 | FAILED |") < summary.index("| case-0 | passed |")
    assert "<summary>case-200</summary>" in summary
    assert "- it took 0 tokens, more than -1" in summary
    assert re.search(r"^\d+ more examples do not fit here\.$", summary, re.MULTILINE)


@pytest.mark.full
def test_a_thousand_cases_run_at_once(evals: Evals) -> None:
    case = "  - {name: case-NUMBER, turns: [{prompt: hi, offline: [Hi.]}]}\n"

    def seconds(count: int) -> float:
        """Return how long `count` cases take, including the start of the process."""
        numbers = range(count)
        evals.declare("cases:\n" + "".join(case.replace("NUMBER", str(n)) for n in numbers))
        began = time.monotonic()
        code, output = evals.run("--jobs", "50")
        assert code == 0, output[-300:]
        assert f"{count} cases, 0 failed" in output
        return time.monotonic() - began

    few, many = seconds(100), seconds(1000)
    print(f"100 cases took {few:.1f} s, 1000 cases {many:.1f} s")
    assert many < 10 * few, "the time per case grows with the number of cases"


REAL = """
cases:
  - name: counts
    tools: {word_count: [{input: {text: a b}, answer: "7"}]}
    turns:
      - prompt: How many words?
        expect:
          tools: [{tool: word_count, input: {text: a b}, answer: "7"}]
          reply: {contains: ["7"]}
  - name: judged
    turns: [{prompt: Be polite., expect: {judge: It is polite.}}]
  - name: endless
    seconds: 1
    turns: [{prompt: Wait for ever.}]
"""


def judged(provider: Provider, reply: str, verdict: str) -> None:
    asked = f"user: Be polite.\nagent: {reply}\n\nThe sentence: It is polite."
    provider.script("Be polite.", [reply], endless=True)
    provider.script(asked, [verdict], endless=True)


def test_a_real_model_answers_and_is_judged(evals: Evals, provider: Provider) -> None:
    evals.declare(REAL)
    provider.script("How many words?", [Call("word_count", {"text": "a b"})], ["There are 7."])
    provider.script("Wait for ever.", [Hold(threading.Event())], endless=True)
    judged(provider, "Go away.", "No. It is rude.")
    model = evals.real["MODEL"]
    code, output = evals.run("--json", "before.json", real=True, JUDGE_MODEL=model)
    assert code == 1
    found = verdicts(output)
    assert found == {"counts": "passed", "judged": "FAILED", "endless": "FAILED"}
    assert "    - the judge: No. It is rude." in output
    assert "    - it did not end within 1 s" in output
    assert re.search(r"3 cases, 2 failed; [1-9]\d* tokens\.", output)

    judged(provider, "Thank you.", "Yes, it is.")
    words = ("judged", "--repeat", "10", "--against", "before.json", "--summary", "summary.md")
    code, output = evals.run(*words, real=True, JUDGE_MODEL=model)
    assert code == 0, output
    result = "passed 10/10 (72% to 100%), before 0/1: too few runs to compare"
    assert verdicts(output) == {"judged": result}
    summary = (evals.folder / "summary.md").read_text()
    assert f"| judged | {result} |" in summary
    for text in ("agent: Go away.", "agent: Thank you."):
        assert text in summary

    code, output = evals.run("judged", real=True)
    assert code == 1
    assert "    - the case has a judge: set JUDGE_MODEL" in output


@pytest.mark.full
def test_a_judge_without_a_verdict_is_an_error_and_no_failure(
    evals: Evals, provider: Provider
) -> None:
    evals.declare(REAL)
    model = evals.real["MODEL"]
    asked = "user: Be polite.\nagent: Thank you.\n\nThe sentence: It is polite."
    provider.script("Be polite.", ["Thank you."], endless=True)
    answers: dict[str, Step] = {
        "neither yes nor no: Perhaps.": ["Perhaps."],
        "incomplete: Yes, it": ["Yes, it", End("length")],
        "unavailable": [Refuse(400)],
    }
    for reason, answer in answers.items():
        provider.script(asked, answer)
        code, output = evals.run("judged", "--junit", "junit.xml", real=True, JUDGE_MODEL=model)
        assert code == 1
        assert verdicts(output) == {"judged": "ERROR"}
        assert reason in output
        assert "1 cases, 0 failed, 1 without a verdict" in output
        [case] = ElementTree.parse(evals.folder / "junit.xml").getroot()
        assert [child.tag for child in case] == ["error"]
    evals.declare(REAL.replace("name: judged\n", "name: judged\n    seconds: 30\n"))
    provider.script(asked, [HANG])
    code, output = evals.run("judged", real=True, JUDGE_MODEL=model)
    assert code == 1
    assert verdicts(output) == {"judged": "ERROR"}
    assert "the judge did not answer in time" in output


def test_a_case_that_expects_only_a_verdict_is_skipped_offline(evals: Evals) -> None:
    evals.declare(
        "cases:\n  - name: judged\n    turns:\n"
        "      - {prompt: Good morning, offline: [Hi]}\n"
        "      - {prompt: Hello, offline: [Hi], expect: {judge: It is polite.}}\n"
    )
    code, output = evals.run("judged")
    assert code == 0
    assert verdicts(output) == {"judged": "skipped"}


def test_a_decline_is_significant_with_enough_runs(evals: Evals, provider: Provider) -> None:
    prompts = {name: f"{name} {uuid4()}" for name in ("often", "seldom")}
    case = "  - {name: NAME, turns: [{prompt: PROMPT, expect: {reply: {contains: [Yes]}}}]}\n"
    lines = [case.replace("NAME", it).replace("PROMPT", prompts[it]) for it in prompts]
    evals.declare("cases:\n" + "".join(lines))
    provider.script(prompts["often"], ["Yes, first."], *[["No, later."]] * 2)
    provider.script(prompts["seldom"], *[["No."]] * 3)
    evals.remember({"often": results("m", 20, 20), "seldom": results("m", 3, 3)})
    words = ("--repeat", "3", "--jobs", "1", "--summary", "summary.md", "--against", "before.json")
    _, output = evals.run(*words, real=True)
    assert verdicts(output) == {
        "often": "FAILED 1/3 (6% to 79%), before 20/20: significantly worse (p = 0.012)",
        "seldom": "FAILED 0/3 (0% to 56%), before 3/3: too few runs to compare",
    }
    both = "FAILED 1/6 (3% to 56%), before 23/23: significantly worse (p < 0.001)"
    assert re.search(rf"^all 2 cases .* {re.escape(both)}$", output, re.MULTILINE), output
    summary = (evals.folder / "summary.md").read_text()
    assert f"| all 2 cases | {both} |" in summary
    assert "agent: No, later.&#10;- the reply lacks &quot;Yes&quot;" in summary
    assert "Yes, first." not in summary, "that run passed"


def test_a_model_that_fails_is_an_outcome_and_nothing_quotes_it(
    evals: Evals, provider: Provider
) -> None:
    prompt = f"{CANARY} {uuid4()}"
    evals.declare(f"cases: [{{name: fails, turns: [{{prompt: {prompt}}}]}}]")
    provider.script(prompt, [Refuse(401)], endless=True)
    code, output = evals.run(real=True)
    assert code == 1
    assert "    - the turn ended as model_failed, not committed (" in output
    assert DETAIL not in output
    assert output.count(CANARY) == 1, "the transcript has it, and no log"


@pytest.mark.full
def test_a_provider_at_its_limit_is_asked_again(evals: Evals, provider: Provider) -> None:
    evals.declare("cases: [{name: again, turns: [{prompt: At the limit?}]}]")
    # The SDK of some vendors asks again at once, too.
    provider.script("At the limit?", *[[Refuse(429, stays=False)]] * 4, ["No."])
    code, output = evals.run(real=True)
    assert (code, verdicts(output)) == (0, {"again": "passed"}), output


def test_an_interrupted_run_keeps_its_results(evals: Evals, provider: Provider) -> None:
    quick, slow = f"Quick {uuid4()}?", f"Slow {uuid4()}?"
    cases = {"quick": quick, "slow": slow}
    lines = [f"  - {{name: {name}, turns: [{{prompt: {it}}}]}}\n" for name, it in cases.items()]
    evals.declare("cases:\n" + "".join(lines))
    provider.script(quick, ["Yes."])
    provider.script(slow, [Hold(threading.Event())], endless=True)
    process = evals.start("--json", "results.json", real=True)
    wait_for("the slow case", lambda: provider.calls_for(slow))
    wait_for("the quick case", lambda: provider.calls_for(quick))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 1, errors
    assert "1 cases, 0 failed, 1 not run" in output, output + errors
    assert [*json.loads((evals.folder / "results.json").read_text())["cases"]] == ["quick"]


@pytest.mark.full
def test_invalid_options_are_reported(evals: Evals) -> None:
    (evals.folder / "other.json").write_text("[]")
    evals.declare("cases: [{nam: no-such-case}]", "bad")
    for words, what in (
        (("--against", "other.json"), "other.json has no results: pass a file that --json wrote."),
        (("--repeat", "0"), "1"),
        (("no-such-case",), "no-such-case\n    - there is no case no-such-case in evals/*.yaml"),
        (("no-such-case",), "evals/bad.yaml:1\n    - evals/bad.yaml:1: "),
        (("--from", "unknown"), "Nothing is stored for session unknown."),
    ):
        code, output = evals.run(*words)
        assert code != 0
        assert what in output, output


@pytest.mark.full
def test_the_store_is_left_alone_and_a_stored_session_becomes_a_case(
    target: Target, provider: Provider, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        backing = Backing(tmp_path / "backing", stack)
        home = Home(target, backing, tmp_path, "valkey")
        shutil.copytree(home.project / "evals", home.folder / "evals")
        ran = home.run("eval")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        # Its secret is not even read, where a model answers.
        without = {**target.provider(provider.origin), "SECRETS_VALKEY_SESSIONS": ""}
        assert " cases, " in home.run("eval", **without).stdout
        unknown = home.run("eval", "--from", "s", **without)
        assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1), unknown
        assert unknown.stderr.startswith("Error: "), unknown
        listed = home.run("sessions", "list")
        assert listed.stdout == "0 sessions\n"
        (home.folder / "evals" / "first.yaml").write_text(
            "cases: [{name: kept, real: true, turns: [{prompt: hi, offline: [Hi.]}]}]"
        )
        assert home.run("eval").returncode == 0
        assert "1 session" in home.run("sessions", "list").stdout

        from tests.conformance.server import Server

        variables = home.store.environment(home.store.address)
        server = Server(home.target, home.folder, None, variables)
        try:
            chat = Chat(server, provider)
            said = server.post(
                {"prompt": 'use word_count: {"text": "a b"}'}, [*chat.headers.items()]
            )
            assert said.status == 200
            mail = {"prompt": "I am ada@example.com, +49 170 1234567."}
            assert server.post(mail, [*chat.headers.items()]).status == 200
        finally:
            server.stop()
        made = home.run("eval", "--from", chat.session)
        assert made.returncode == 0, made.stderr
        assert "<<ada@example.com>>, <<+49 170 1234567>>" in made.stdout
        assert chat.session in made.stdout.splitlines()[0]
        (home.folder / "evals" / "first.yaml").write_text(made.stdout)
        code = home.run("eval", "--json", "results.json")
        assert code.returncode == 0, code.stdout
        (runs,) = json.loads((home.folder / "results.json").read_text())["cases"].values()
        turns: list[Any] = runs[0]["turns"]
        assert [call["answer"] for call in turns[0]["calls"]] == ["2"]
        assert "Now you said:" in turns[1]["reply"]


# The part of GitHub's CLI that the workflow uses: comments.json has the comments of issue 7.
GH = """\
import json, os, subprocess, sys
args = sys.argv[1:]
assert args.pop(0) == "api"
options = {}
for name in ("--method", "--field", "--jq"):
    if name in args:
        at = args.index(name)
        options[name] = args[at + 1]
        del args[at : at + 2]
pages = "--paginate" in args and not args.remove("--paginate")
(path,) = args
with open("comments.json") as file:
    comments = json.load(file)
if "--field" not in options:
    assert path == "repos/o/r/issues/7/comments"
    assert pages, "the first page has 30 comments"
    for start in range(0, len(comments), 30):
        page = json.dumps(comments[start : start + 30])
        subprocess.run(["jq", "-r", options["--jq"]], input=page, text=True, check=True)
    sys.exit()
name, _, source = options["--field"].partition("=@")
assert name == "body"
with open(source) as file:
    body = file.read()
if options.get("--method", "POST") == "POST":
    assert path == "repos/o/r/issues/7/comments"
    bot = {"login": "github-actions[bot]"}
    comments.append({"id": len(comments) + 100, "user": bot, "body": body})
else:
    assert options["--method"] == "PATCH"
    (comment,) = [it for it in comments if path == f"repos/o/r/issues/comments/{it['id']}"]
    comment["body"] = body
with open("comments.json", "w") as file:
    json.dump(comments, file)
"""


def workflow(target: Target) -> dict[str, Any]:
    source = target.project() / ".github" / "workflows" / "evals.yml"
    found: dict[str, Any] = yaml.safe_load(source.read_text())
    return found


@pytest.mark.skipif(not shutil.which("jq"), reason="there is no jq")
def test_the_workflow_edits_only_its_own_comment(target: Target, tmp_path: Path) -> None:
    (step,) = [it for it in workflow(target)["jobs"]["real"]["steps"] if "comment" in str(it)][-1:]
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(f"#!{sys.executable}\n{GH}")
    gh.chmod(0o755)
    ref = "o/r/.github/workflows/evals.yml@refs/pull/7/merge"
    variables = {
        "PATH": f"{gh.parent}:{os.environ['PATH']}",
        "GH_REPO": "o/r",
        "NUMBER": "7",
        "GITHUB_WORKFLOW_REF": ref,
    }
    bot = {"login": "github-actions[bot]"}
    others: list[dict[str, Any]] = [
        {"id": number, "user": bot, "body": "coverage"} for number in range(40)
    ]
    marker = f"<!-- {ref.partition('@')[0]} -->"
    others.append({"id": 40, "user": {"login": "somebody"}, "body": f"{marker}\nquoted"})
    others.append({"id": 41, "user": bot, "body": marker.replace("evals.yml", "evals-2.yml")})
    stored = tmp_path / "comments.json"
    stored.write_text(json.dumps(others))
    comment = tmp_path / "comment.md"
    for text in ("first", "second", "The evals did not run"):
        comment.write_text(text)
        if text == "The evals did not run":
            comment.unlink()  # the workflow says so
        ran = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        *before, own = json.loads(stored.read_text())
        assert before == others
        assert text in own["body"]


def test_the_workflow_runs_each_case_often_enough(target: Target) -> None:
    commands = " ".join(it.get("run", "") for it in workflow(target)["jobs"]["real"]["steps"])
    before, after = map(int, re.findall(r"--repeat (\d+)", commands))
    # The smallest p-value of Fisher's exact test, two sides: all passed before, and none now.
    assert 2 / comb(before + after, before) < 0.05


def test_promptfoo_gets_each_turn(evals: Evals) -> None:
    code, output = evals.run("--promptfoo")
    assert code == 0
    assert "npx promptfoo eval -j 1 -c evals/promptfooconfig.yaml" in output
    config = yaml.safe_load((evals.folder / "evals" / "promptfooconfig.yaml").read_text())
    assert len(config["tests"]) == 6
    variables = config["tests"][3]["vars"]
    assert variables["prompt"] == "What is my name?"
    assert variables["conversation"].startswith("remembers-in-a-session-")
    assert evals.run()[0] == 0, "it is no file of cases"
