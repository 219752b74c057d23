"""The scripts of deploy/ for AgentCore: one command, from a commit to an agent, and back."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from hooks.variants import TARGETS
from tests.deploy.account import LOGS, RUNTIME, Account, Ran, changes, opened
from tests.deploy.cloudformation import ACCOUNT, REGION
from tests.deploy.commands import REGISTRY
from tests.deploy.test_agentcore import RENDERS, SHELL, project_of
from tests.installed import rendered
from tests.stores.servers import find_program

SHELLCHECK, ZIP = find_program("shellcheck"), find_program("zip")
SCRIPTS = ("up", "rollback", "down")
BUCKET = f"my-agent-{ACCOUNT}-{REGION}"
GIVEN = {
    "custom": [f"ModelUrl={SHELL['OPENAI_BASE_URL']}", f"SessionsUrl={SHELL['SESSIONS_URL']}"],
    "fallback": [f"ModelFallback={SHELL['MODEL_FALLBACK']}"],
    "auth": [f"AuthIssuer={SHELL['AUTH_ISSUER']}", f"AuthAudience={SHELL['AUTH_AUDIENCE']}"],
}
SECRETS = {
    "valkey": {"ANTHROPIC_API_KEY": "sk-2", "secrets/valkey/sessions": "valkeys://"},
    "custom": {"OPENAI_API_KEY": "sk-1", "SESSIONS_TOKEN": "token"},
    "s3": {"OPENAI_API_KEY": "sk-1"},
    "tracing": {"OPENAI_API_KEY": "sk-1"},
    "gateway": {"AI_GATEWAY_API_KEY": "sk-3"},
}
# The usual run has a part of the renders: each target once.
FEW = [
    pytest.param(name, marks=[] if index < len(TARGETS) else [pytest.mark.full])
    for index, name in enumerate(RENDERS)
]
needs_zip = pytest.mark.skipif(ZIP is None, reason="there is no zip: apt-get install zip")


class Project:
    """A render in Git, with its lock, whose scripts reach an account."""

    def __init__(self, name: str, account: Account, folder: Path) -> None:
        self.name, self.account, self.path = name, account, folder / "project"
        shutil.copytree(project_of(name), self.path)
        for lock in ("uv.lock", "package-lock.json"):
            (self.path / lock).write_text("{}")
        self.git("init", "-q")
        self.commit("First")

    def git(self, *words: str) -> str:
        names = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        run = subprocess.run(
            ["git", *names, *words], cwd=self.path, check=True, capture_output=True, text=True
        )
        return run.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "--short=12", "HEAD")

    def run(self, script: str, *words: str, **variables: str) -> Ran:
        return self.account.run(self.path, f"deploy/{script}", *words, **{**SHELL, **variables})

    def up(self, *words: str, **variables: str) -> Ran:
        """Deploy, with the parameters that the first deployment needs."""
        return self.run("up", *GIVEN.get(self.name, []), *words, **variables)

    def key(self, commit: str) -> dict[str, str]:
        """The parameters of the stack for the zip file of a commit."""
        return {"CodeBucket": BUCKET, "CodeKey": f"my-agent/{commit}.zip", "Image": ""}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with opened(tmp_path) as account:
        yield account


def refused(ran: Ran, script: str = "up") -> str:
    """The last line of a script that failed, which says why."""
    assert ran.code == 1, ran
    *_, last = ran.errors.splitlines()
    begin = f"deploy/{script}: "
    assert last.startswith(begin), ran.errors
    assert ran.errors.count(begin) == 1, ran.errors
    return last.removeprefix(begin)


@pytest.mark.skipif(SHELLCHECK is None, reason="there is no shellcheck: apt-get install shellcheck")
@pytest.mark.parametrize("name", FEW)
def test_shellcheck_finds_nothing_in_the_scripts(name: str) -> None:
    files = [f"deploy/{it}" for it in (*SCRIPTS, "common.sh")]
    assert SHELLCHECK
    run = subprocess.run(
        [SHELLCHECK, "-x", *files], cwd=project_of(name), capture_output=True, text=True
    )
    assert (run.stdout, run.returncode) == ("", 0)
    for script in SCRIPTS:
        assert (project_of(name) / "deploy" / script).stat().st_mode & 0o111
    lines = [it for file in files for it in (project_of(name) / file).read_text().splitlines()]
    assert max(map(len, lines)) <= 100


@needs_zip
@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_one_command_deploys_and_another_deletes(
    name: str, account: Account, tmp_path: Path
) -> None:
    project = Project(name, account, tmp_path)
    commit = project.git("rev-parse", "--short=12", "HEAD")
    ran = project.up()
    assert ran.code == 0, ran
    stack = account.contents["stack"]
    assert stack["status"] == "CREATE_COMPLETE"
    assert stack.items() >= {**project.key(commit), **_pairs(GIVEN.get(name, []))}.items()
    (names,) = account.buckets[BUCKET].values()
    is_python = (project.path / "pyproject.toml").exists()
    needed = ["main.py", "my_agent/main.py"] if is_python else ["main.js", "src/main.ts"]
    assert {*needed} <= {*names}
    assert ("collections/" in names) == (project.path / "collections").exists()
    assert not {"Dockerfile", ".git/", "tests/", "docs/"} & {*names}
    wanted = {f"my-agent/{it}": value for it, value in SECRETS.get(name, {}).items()}
    assert account.secrets.keys() == wanted.keys()
    assert all(account.secrets[it].startswith(value) for it, value in wanted.items())
    assert not any(secret in str(account.calls[-1].words) for secret in account.secrets.values())
    assert "The agent answered: " in ran.output
    for shown in (RUNTIME, LOGS, "#gen-ai-observability", "bedrock-agentcore.us-east-1"):
        assert shown in ran.output
    # A second run changes nothing.
    before, calls = account.contents, len(account.calls)
    assert project.up().code == 0
    assert account.contents == {**before, "stack": {**stack, "status": "UPDATE_COMPLETE"}}
    made = [it.split()[1:3] for it in changes(account.calls[calls:])]
    assert ["cloudformation", "deploy"] in made
    assert not {"s3", "secretsmanager", "ecr"} & {service for service, _ in made}

    ran = project.run("down", "--yes")
    assert ran.code == 0, ran
    empty: dict[str, Any] = {"buckets": {}, "repositories": {}, "secrets": {}, "stack": None}
    assert account.contents.items() >= empty.items()
    assert account.groups == {LOGS}
    # The commands that it prints delete the rest.
    erase = "\n".join(commands_in(ran))
    ran = account.run(project.path, typed=f"set -e\n{erase}", AWS_REGION=REGION)
    assert ran.code == 0, ran
    assert account.contents == {**empty, "remaining": {}, "logs": []}


def _pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


@pytest.mark.parametrize("name", ["valkey", "s3"])
@pytest.mark.full
def test_an_image_replaces_the_zip_file_until_zip(
    name: str, account: Account, tmp_path: Path
) -> None:
    project = Project(name, account, tmp_path)
    (project.path / "apt.txt").write_text("# Packages.\nffmpeg\n")
    commit = project.commit("A package")
    assert refused(project.up()).endswith("Run deploy/up --image.")
    assert changes(account.calls) == []
    ran = project.up("--image")
    assert ran.code == 0, ran
    image = f"{REGISTRY}/my-agent:{commit}"
    assert account.contents["stack"].items() >= {"Image": image, "CodeKey": ""}.items()
    assert account.repositories == {"my-agent": {commit}}
    assert account.buckets == {}
    later = project.commit("Another")
    assert project.up().code == 0
    assert account.repositories == {"my-agent": {commit, later}}
    ran = project.run("rollback")
    assert ran.code == 0, ran
    assert account.contents["stack"]["Image"] == image
    if ZIP:
        (project.path / "apt.txt").write_text("")
        last = project.commit("No package")
        assert project.up("--zip").code == 0
        assert account.contents["stack"].items() >= project.key(last).items()
    assert project.run("down", "--yes").code == 0
    assert (account.repositories, account.buckets) == ({}, {})


@needs_zip
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "kind", "is_reply_lost", "every"),
    [
        ("valkey", "--zip", True, 6),
        pytest.param("valkey", "--zip", True, 1, marks=pytest.mark.full),
        pytest.param("custom", "--image", False, 1, marks=pytest.mark.full),
        pytest.param("valkey", "--zip", False, 1, marks=pytest.mark.full),
        pytest.param("custom", "--image", True, 1, marks=pytest.mark.full),
    ],
)
def test_a_run_continues_after_a_failure_of_any_step(
    name: str, kind: str, is_reply_lost: bool, every: int, account: Account, tmp_path: Path
) -> None:
    """`every`: one of so many steps fails in turn."""
    project = Project(name, account, tmp_path)
    empty = account.save()
    assert project.up(kind).code == 0
    deployed, wanted, ups = account.save(), account.contents, account.calls
    account.restore(deployed)
    assert project.run("down", "--yes").code == 0
    deleted, downs = account.contents, account.calls
    account.is_reply_lost = is_reply_lost
    # A failure to read the last event does not matter.
    harmless = ("sleep", "aws cloudformation describe-stack-events")
    for script, words, calls, before, after in (
        ("up", [*GIVEN.get(name, []), kind], ups, empty, wanted),
        ("down", ["--yes"], downs, deployed, deleted),
    ):
        assert len(calls) > 10
        for step, call in enumerate(calls):
            if step % every or " ".join(call.words).startswith(harmless):
                continue
            account.restore(before)
            account.fails_at = step
            assert refused(project.run(script, *words), script), call
            assert len(account.calls) <= step + 2, "the run continues after a failure"
            if not changes([call]):
                continue
            account.fails_at, account.pending = -1, 0
            ran = project.run(script, *words)
            assert ran.code == 0, (call, ran)
            found = account.contents
            if found["stack"]:
                found["stack"]["status"] = "CREATE_COMPLETE"
            assert found == after, call


@needs_zip
@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("name", "kind"), [("valkey", "--zip"), ("auth", "--image")])
def test_a_dry_run_prints_the_commands_and_changes_nothing(
    name: str, kind: str, account: Account, tmp_path: Path
) -> None:
    project = Project(name, account, tmp_path)

    def shown(ran: Ran) -> list[list[str]]:
        assert ran.code == 0, ran
        lines = [it for it in ran.output.splitlines() if it.startswith("+ ")]
        words = [shlex.split(line)[1:] for line in lines]
        local = {"mkdir", "git", "tar", "cp", "zip"}
        return [_steady(it) for it in words if it[0] not in local and "wait" not in it]

    def done(since: int) -> list[list[str]]:
        calls = [it.words for it in account.calls[since:] if " ".join(it.words) in changed]
        return [_steady(it) for it in calls]

    for script, words in (("up", [kind, *GIVEN.get(name, [])]), ("down", ["--yes"])):
        before, since = account.contents, len(account.calls)
        printed = shown(project.run(script, "--dry-run", *words))
        assert account.contents == before
        assert changes(account.calls[since:]) == []
        since = len(account.calls)
        assert project.run(script, *words).code == 0
        changed = changes(account.calls[since:])
        assert printed == done(since)
    project.up(kind)
    project.commit("Second")
    assert project.up(kind).code == 0
    before, since = account.contents, len(account.calls)
    printed = shown(project.run("rollback", "--dry-run"))
    assert (account.contents, changes(account.calls[since:])) == (before, [])
    assert ["aws", "cloudformation", "deploy"] in [it[:3] for it in printed]


def _steady(words: list[str]) -> list[str]:
    """The words of a command, without those that differ between two runs."""
    ends = ("/code", ".zip", ".txt", "/reply", "/source", ".yaml")
    kept = [Path(it).name if it.startswith("/") and it.endswith(ends) else it for it in words]
    kept = ["session" if "first-turn-of" in it else it for it in kept]
    return [it.replace(quote(RUNTIME, safe=""), "ARN").replace(RUNTIME, "ARN") for it in kept]


@pytest.mark.full
@needs_zip
def test_a_rollback_goes_back_one_artifact_each_time(account: Account, tmp_path: Path) -> None:
    project = Project("bedrock", account, tmp_path)
    assert "There is no stack" in refused(project.run("rollback"), "rollback")
    commits = []
    for message in ("First", "Second", "Third"):
        commits.append(project.commit(message))
        assert project.up().code == 0
    first, second, third = commits
    assert project.up("Model=another").code == 0  # another version with the same artifact
    parameters = account.contents["stack"]
    for commit in (second, first):
        ran = project.run("rollback")
        assert ran.code == 0, ran
        assert account.contents["stack"] == parameters | project.key(commit)
    assert "No version before" in refused(project.run("rollback"), "rollback")
    assert project.up().code == 0
    assert account.contents["stack"] == parameters | project.key(third)
    (project.path / "deploy" / "agentcore.yaml").write_text("an edit that is not deployed")
    del account.buckets[BUCKET][f"my-agent/{second}.zip"]
    assert "was deleted. Check out its commit" in refused(project.run("rollback"), "rollback")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"edit": True}, "src/new.txt"),
        ({"lock": False}, "and commit it."),
        ({"region": ""}, "export AWS_REGION=us-east-1"),
        ({"region": "eu-west-1"}, "names the region us-east-1, but you deploy in eu-west-1."),
        ({"secret": ""}, "Set SESSIONS_TOKEN, so that deploy/up can create the secret"),
        ({"parameter": False}, "Run deploy/up ModelUrl=..."),
        ({"program": "npm"}, "npm is not installed. Install it."),
        ({"status": "UPDATE_IN_PROGRESS"}, "Run deploy/up again later."),
        ({"status": "UPDATE_ROLLBACK_FAILED"}, "continue-update-rollback"),
    ],
)
def test_what_is_missing_is_named_before_anything_changes(
    given: dict[str, Any], advice: str, account: Account, tmp_path: Path
) -> None:
    project = Project("custom", account, tmp_path)
    variables = {}
    if "edit" in given:
        (project.path / "src" / "new.txt").write_text("new")
    if "lock" in given:
        project.git("rm", "-q", "package-lock.json")
        project.commit("No lock")
    if "region" in given:
        account.region = given["region"]
        variables["AWS_REGION"] = ""
    if "secret" in given:
        variables["SESSIONS_TOKEN"] = ""
    if "program" in given:
        path = tmp_path / "bin"
        (path / given["program"]).unlink()
        for name in ("dash", "dirname", "mktemp", "rm", "git", "grep", "sed", "cat"):
            found = shutil.which(name)
            assert found
            (path / name).symlink_to(found)
        variables["PATH"] = str(path)
    if "status" in given:
        account.stack = {"status": given["status"], "parameters": {}, "template": ""}
    words = [] if "parameter" in given else GIVEN["custom"]
    ran = project.run("up", *words, **variables)
    assert ran.code == 1
    assert advice in ran.errors
    assert ran.errors.count("deploy/up: ") == 1
    assert changes(account.calls) == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["up", "rollback"])
def test_the_program_of_the_first_turn_is_checked_first(
    script: str, account: Account, tmp_path: Path
) -> None:
    project = Project("auth", account, tmp_path)
    path = tmp_path / "bin"
    (path / "curl").unlink()
    for name in ("dash", "dirname", "mktemp", "rm", "git", "grep", "sed", "cat", "zip"):
        if found := shutil.which(name):
            (path / name).symlink_to(found)
    words = GIVEN["auth"] if script == "up" else []
    advice = "curl is not installed. Install it."
    assert refused(project.run(script, *words, PATH=str(path)), script) == advice
    assert account.calls == []
    # Without a token, there is no first turn.
    ran = project.run(script, *words, PATH=str(path), TOKEN="")
    assert advice not in ran.errors


@needs_zip
@pytest.mark.full
def test_a_failed_first_deployment_is_deleted_by_the_next(account: Account, tmp_path: Path) -> None:
    project = Project("bedrock", account, tmp_path)
    account.refused = "The name of the memory exists."
    line = refused(project.up())
    assert line.startswith("CloudFormation did not deploy the stack. The name of the memory exists")
    account.refused = ""
    assert project.up().code == 0
    account.is_silent = True
    assert f"aws logs tail {LOGS}" in refused(project.up("Model=unknown"))


@needs_zip
@pytest.mark.slow
def test_a_failed_first_deployment_passes_its_parameters_on(
    account: Account, tmp_path: Path
) -> None:
    project = Project("bedrock", account, tmp_path)
    given = {"Subnets": "subnet-1, subnet-2", "SecurityGroups": "sg-1", "GuardrailId": "g1"}
    account.refused = "The name of the memory exists."
    refused(project.up("Model=one", *[f"{name}={value}" for name, value in given.items()]))
    account.refused = ""
    commit = project.commit("Second")
    ran = project.up("Model=two")
    assert ran.code == 0, ran
    assert "\nSubnets=subnet-1, subnet-2\n" in ran.output
    # They name the code of the failed deployment.
    assert not re.search(r"^(CodeBucket|CodeKey|Image)=", ran.output, re.MULTILINE)
    wanted = {**given, "Model": "two", **project.key(commit)}
    assert account.contents["stack"].items() >= wanted.items()


@needs_zip
@pytest.mark.slow
def test_a_failure_without_an_event_has_no_reason_of_an_earlier_one(
    account: Account, tmp_path: Path
) -> None:
    project = Project("bedrock", account, tmp_path)
    assert project.up().code == 0
    account.refused = "The role is missing."
    assert "The role is missing." in refused(project.up("Model=one"))
    account.refused, account.is_invalid = "", True
    assert "Its message is above." in refused(project.up("Model=two"))


@needs_zip
@pytest.mark.slow
def test_a_rollback_deploys_the_same_template(account: Account, tmp_path: Path) -> None:
    project = Project("bedrock", account, tmp_path)
    file = project.path / "deploy" / "agentcore.yaml"
    file.write_text(file.read_text() + "# C:\\temp\\new, \\0101, \\c and more\n")
    for message in ("First", "Second"):
        project.commit(message)
        assert project.up().code == 0
    ran = project.run("rollback")
    assert ran.code == 0, ran
    assert account.stack
    assert account.stack["template"] == file.read_text()


def updated(project: Project, variant: str, **answers: str) -> None:
    """Give the project other answers, as `copier update` does."""
    shutil.rmtree(project.path / "deploy")
    shutil.copytree(rendered(variant, **answers), project.path, dirs_exist_ok=True)
    project.commit("Other answers")


def commands_in(ran: Ran) -> list[str]:
    """The commands for the remaining resources that `down` prints."""
    return [it for it in ran.output.splitlines() if it.startswith(("  aws ", "  while "))]


@needs_zip
@pytest.mark.slow
@pytest.mark.parametrize("is_list_late", [False, True])
def test_down_deletes_the_secrets_of_earlier_answers_and_names_the_others(
    is_list_late: bool, account: Account, tmp_path: Path
) -> None:
    project = Project("valkey", account, tmp_path)
    # A secret that the person made is used as it is.
    account.secrets["my-agent/secrets/valkey/sessions"] = "valkeys://"
    account.secrets |= {"my-agent/PAYMENTS": "own", "my-agent-2/OPENAI_API_KEY": "another project"}
    account.descriptions["my-agent-2/OPENAI_API_KEY"] = "Created by deploy/up"
    assert project.up().code == 0
    updated(project, "vercel-python", session_store="s3", model="bedrock", deploy="agentcore")
    assert project.run("up").code == 0
    if is_list_late:
        account.unlisted = {"my-agent/ANTHROPIC_API_KEY", "my-agent/secrets/valkey/sessions"}
    ran = project.run("down", "--yes")
    assert ran.code == 0, ran
    assert "  the secret my-agent/ANTHROPIC_API_KEY\n" in ran.output
    assert "my-agent-2" not in ran.output
    left = ["my-agent/PAYMENTS", "my-agent/secrets/valkey/sessions"]
    assert account.secrets.keys() == {*left, "my-agent-2/OPENAI_API_KEY"}
    printed = [it.split(" #")[0] for it in commands_in(ran) if "secretsmanager" in it]
    assert printed == [f"  aws secretsmanager delete-secret --secret-id {it}" for it in left]
    account.run(project.path, typed="\n".join(printed), AWS_REGION=REGION)
    assert account.contents["secrets"].keys() == {"my-agent-2/OPENAI_API_KEY"}
    assert not any("secretsmanager" in it for it in commands_in(project.run("down", "--yes")))


@needs_zip
@pytest.mark.slow
def test_down_names_what_an_update_left_outside_the_stack(account: Account, tmp_path: Path) -> None:
    project = Project("s3", account, tmp_path)
    assert project.up().code == 0
    answers = {"long_term_memory": "none", "session_store": "valkey", "deploy": "agentcore"}
    updated(project, "vercel-typescript", **answers)
    assert project.run("up").code == 0
    assert account.remaining.keys() == {"Memory", "Sessions"}
    ran = project.run("down", "--yes")
    assert ran.code == 0, ran
    erase = "\n".join(commands_in(ran))
    assert account.run(project.path, typed=f"set -e\n{erase}", AWS_REGION=REGION).code == 0
    assert account.remaining == {}


@needs_zip
@pytest.mark.slow
def test_a_second_down_names_the_remaining_resources_again(
    account: Account, tmp_path: Path
) -> None:
    project = Project("bedrock", account, tmp_path)
    assert project.up().code == 0
    deployed = account.save()
    account.restore(deployed)
    wanted = commands_in(project.run("down", "--yes"))
    assert any("delete-memory" in it for it in wanted)
    steps = [at for at, it in enumerate(account.calls) if it.words[:3] == ["aws", "s3", "rb"]]
    account.restore(deployed)
    (account.fails_at,) = steps
    refused(project.run("down", "--yes"), "down")
    assert account.stack is None
    account.fails_at = -1
    ran = project.run("down", "--yes")
    assert ran.code == 0, ran
    assert commands_in(ran) == wanted


def test_down_asks_first(account: Account, tmp_path: Path) -> None:
    project = Project("bedrock", account, tmp_path)
    ran = project.run("down")
    assert "Nothing was deleted." in refused(ran, "down")
    assert "the bucket " + BUCKET in ran.output
    assert "even if deploy/up did not create them" in ran.output
    assert changes(account.calls) == []


@pytest.mark.parametrize("status", ["REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"])
def test_down_deletes_a_stack_that_has_no_resources(
    status: str, account: Account, tmp_path: Path
) -> None:
    project = Project("bedrock", account, tmp_path)
    account.stack = {"status": status, "parameters": {}, "template": ""}
    ran = project.run("down", "--yes")
    assert ran.code == 0, ran
    assert account.stack is None


@pytest.mark.parametrize("name", FEW)
def test_the_docs_list_the_permission_to_name_a_user(name: str) -> None:
    project = project_of(name)
    text = (project / "docs" / "agentcore.md").read_text()
    actions = text.partition("these actions of\n  `bedrock-agentcore`: ")[2].partition(".\n")[0]
    assert "`InvokeAgentRuntime`" in actions
    is_named = "--runtime-user-id" in (project / "deploy" / "common.sh").read_text()
    assert ("`InvokeAgentRuntimeForUser`" in actions) == is_named
    assert ("for the user `deploy`" in text) == is_named


@needs_zip
@pytest.mark.slow
def test_the_workflow_deploys_without_a_key(account: Account, tmp_path: Path) -> None:
    project = Project("bedrock", account, tmp_path)
    workflow = yaml.safe_load((project.path / ".github/workflows/deploy.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in str(workflow)
    (job,) = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read", "id-token": "write"}
    token, deploy = [step["run"] for step in job["steps"] if "run" in step]
    (tmp_path / "bin" / "curl").write_text('#!/bin/sh\necho \'{"count":1,"value":"e.y.j"}\'\n')
    given = {
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "t",
        "ACTIONS_ID_TOKEN_REQUEST_URL": "https://tokens.example.com/?a=b",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_REGION": REGION,
    }
    ran = account.run(project.path, typed=f"set -e\n{token}\n{deploy}", **given)
    assert ran.code == 0, ran
    assert (tmp_path / "token").read_text().strip() == "e.y.j"
    assert account.contents["stack"]["status"] == "CREATE_COMPLETE"
