"""The commands of docs/agentcore.md, the resources that they create, and an invocation."""

import fnmatch
import glob
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import boto3
import botocore.session
import httpx
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from urllib3 import HTTPResponse

from hooks.variants import EXTRAS, TARGETS
from tests.agentcore.boto import SESSION
from tests.agentcore.conftest import agentcore  # noqa: F401 (a fixture)
from tests.agentcore.server import AgentCore
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.conformance.vendor_wires import Converse
from tests.deploy import commands
from tests.deploy.account import PHYSICAL
from tests.deploy.cloudformation import (
    ACCOUNT,
    BUCKET,
    MEMORY,
    REGION,
    Stack,
    lost,
    replaced,
    request,
)
from tests.installed import installed, rendered
from tests.stores.agents import command
from tests.stores.servers import wait_for

# Each answer that has a part in the files, in one of these; the languages take turns.
RENDERS = {
    "bedrock": ("strands-python+agentcore+runtime", {}),
    "s3": ("vercel-typescript+agentcore+runtime", {"session_store": "s3"}),
    "custom": (
        "strands-typescript+agentcore+runtime",
        {"session_store": "custom", "model": "openai-compatible"},
    ),
    "valkey": (
        "vercel-python+agentcore+runtime",
        {"session_store": "valkey", "model": "anthropic", "long_term_memory": "none"},
    ),
    "fallback": ("strands-python+fallback", {"deploy": "agentcore"}),
    "knowledge-base": (
        "vercel-python+knowledge-base",
        {"deploy": "agentcore", "model": "bedrock"},
    ),
    "compaction": ("strands-typescript+compaction", {"deploy": "agentcore"}),
    "auth": ("strands-typescript+auth", {"deploy": "agentcore"}),
    "tracing": ("vercel-python+tracing", {"deploy": "agentcore"}),
    "gateway": ("vercel-typescript", {"deploy": "agentcore", "model": "gateway"}),
}
# Everything that the stack knows and that one render can have.
CROWDED = {
    f"crowded-{target}": (
        f"{target}+valkey+agentcore+knowledge-base",
        {
            "deploy": "agentcore",
            "session_store": "s3",
            "model": "bedrock",
            "extras": f"[{','.join(EXTRAS)}]",
        },
    )
    for target in ("strands-python", "vercel-typescript")
}
USUAL = ("strands-python", "vercel-typescript")
FULL = pytest.mark.full
IMAGE = f"{commands.REGISTRY}/my-agent:1"
PLATFORM = {"Image", "ImageToken", "LogGroups", "Logs"}
# Of the variables in docs/agentcore.md those that it takes from the shell.
SHELL = {
    "OPENAI_BASE_URL": "https://models.example.com/v1",
    "SESSIONS_URL": "https://sessions.example.com",
    "MODEL_FALLBACK": "global.anthropic.claude-haiku-4-5",
    "OPENAI_API_KEY": "sk-1",
    "ANTHROPIC_API_KEY": "sk-2",
    "AI_GATEWAY_API_KEY": "sk-3",
    "SESSIONS_TOKEN": "token",
    "AUTH_ISSUER": "https://cognito-idp.us-east-1.amazonaws.com/us-east-1_Example/",
    "AUTH_AUDIENCE": "1h57kf5cpq17m0eml12example",
    "AWS_REGION": REGION,
    "TOKEN": "a.b.c",
    "SECRETS_VALKEY_SESSIONS": "valkeys://valkey.example.com:6379",
}
# The resources of a knowledge base, and what CloudFormation adds to those without a name.
KNOWLEDGE_BASE = [
    ("s3vectors", "CreateIndex", "VectorIndex"),
    ("bedrock-agent", "CreateKnowledgeBase", "KnowledgeBase"),
    ("bedrock-agent", "CreateDataSource", "DataSource"),
]
NAMED = {"VectorIndex": {"IndexName": "facts"}, "KnowledgeBase": {}, "DataSource": {}}
RECORDS = {*PHYSICAL}
CONTROL = botocore.session.get_session().get_service_model("bedrock-agentcore-control")


def project_of(name: str) -> Path:
    variant, answers = (RENDERS | CROWDED)[name]
    return rendered(variant, **answers)


def stack_of(project: Path) -> Stack:
    """The stack with every parameter that has no default."""
    more = {"ModelUrl": SHELL["OPENAI_BASE_URL"], "SessionsUrl": SHELL["SESSIONS_URL"]}
    text = (project / "deploy" / "agentcore.yaml").read_text()
    more |= {
        "ModelFallback": SHELL["MODEL_FALLBACK"],
        "GuardrailId": "gr0abc1def2",
        "GuardrailVersion": "3",
        "AuthIssuer": SHELL["AUTH_ISSUER"],
        "AuthAudience": SHELL["AUTH_AUDIENCE"],
    }
    return Stack(project, Image=IMAGE, **{it: more[it] for it in more if f"  {it}:" in text})


def taken_down(project: Path, folder: Path) -> list[commands.Command]:
    """What a shell calls that is given all lines of the page."""
    outputs = [{"OutputKey": it, "OutputValue": v} for it, v in stack_of(project).outputs.items()]
    replies = {"cloudformation describe-stacks": {"Stacks": [{"Outputs": outputs}]}}
    return commands.run(commands.block(project), folder, replies, **SHELL)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"Image": IMAGE}, ""),
        ({"CodeBucket": "code", "CodeKey": "a.zip"}, ""),
        ({}, "Set Image, or CodeBucket and CodeKey."),
        ({"CodeKey": "a.zip"}, "CodeKey needs CodeBucket."),
        (
            {"Image": IMAGE, "CodeBucket": "code", "CodeKey": "a.zip"},
            "Set either Image or CodeKey. Clear the other with Image= or CodeKey=.",
        ),
    ],
)
def test_a_stack_has_an_image_or_a_zip_file(given: dict[str, str], refused: str) -> None:
    stack = Stack(project_of("bedrock"), **given)
    assert stack.refusals == ([refused] if refused else [])


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_no_update_of_a_stack_deletes_records(language: str) -> None:
    variant = f"strands-{language}+valkey+agentcore+knowledge-base"
    answers = {"deploy": "agentcore", "session_store": "s3", "model": "bedrock"}
    given = {"Image": IMAGE, "GuardrailId": "gr0abc1def2"}
    project = rendered(variant, **answers)
    before = Stack(project, **given)
    assert before.resources.keys() >= RECORDS
    # The names that stacks of earlier releases have.
    assert before.properties("Memory")["Name"] == "my_agent_memory"
    renamed = Stack(project, **given, Name="support")
    assert not any(replaced(before, renamed, name) for name in RECORDS)
    moved = Stack(project, **given, MemoryName="another_memory")
    forgetful = Stack(rendered(variant, **answers | {"long_term_memory": "none"}), **given)
    storeless = Stack(rendered(variant, **answers | {"session_store": "in-process"}), **given)
    for after in (renamed, moved, forgetful, storeless):
        assert lost(before, after) & RECORDS == set()


@pytest.mark.full
@pytest.mark.slow
def test_cloudformation_accepts_the_files() -> None:
    files = [project_of(name) / "deploy" / "agentcore.yaml" for name in (*RENDERS, *CROWDED)]
    linter = Path(sys.executable).with_name("cfn-lint")
    linted = subprocess.run(
        # The linter reads the names as patterns.
        [linter, "-r", REGION, "eu-central-1", "--", *(glob.escape(str(it)) for it in files)],
        capture_output=True,
        text=True,
    )
    assert (linted.returncode, linted.stdout) == (0, ""), linted.stdout + linted.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RENDERS, *(pytest.param(it, marks=FULL) for it in CROWDED)])
def test_aws_accepts_the_resources(name: str) -> None:
    stack = stack_of(project_of(name))
    operation = CONTROL.operation_model("CreateAgentRuntime")
    created = request(operation.input_shape, stack.properties("Runtime"))
    assert created["agentRuntimeArtifact"] == {"containerConfiguration": {"containerUri": IMAGE}}
    assert created["protocolConfiguration"] == {"serverProtocol": "HTTP"}
    assert "resolve:" not in json.dumps(created).replace("{{resolve:secretsmanager:", "")
    assert created["networkConfiguration"] == {"networkMode": "PUBLIC"}
    assert stack.resources.keys().isdisjoint({"Stable"})
    if stack_of(project_of(name)).environment.get("AUTH_ISSUER"):
        jwt = created["authorizerConfiguration"]["customJWTAuthorizer"]
        assert jwt == {
            "discoveryUrl": f"{SHELL['AUTH_ISSUER'].rstrip('/')}/.well-known/openid-configuration",
            "allowedClients": [SHELL["AUTH_AUDIENCE"]],
        }
        allowed = created["requestHeaderConfiguration"]["requestHeaderAllowlist"]
        assert "Authorization" in allowed
    if "Memory" in stack.declared["Resources"]:
        operation = CONTROL.operation_model("CreateMemory")
        request(operation.input_shape, stack.properties("Memory"))
    for service, operation, resource in KNOWLEDGE_BASE:
        if resource in stack.declared["Resources"]:
            model = botocore.session.get_session().get_service_model(service)
            properties = stack.properties(resource)
            request(model.operation_model(operation).input_shape, {**NAMED[resource], **properties})


@pytest.mark.slow
def test_parameters_bring_a_vpc_and_an_endpoint_that_stays() -> None:
    given = {"Subnets": "subnet-0aaaaaaa,subnet-0bbbbbbb", "SecurityGroups": "sg-0aaaaaaa"}
    stack = Stack(project_of("s3"), Image=IMAGE, StableVersion="7", **given)
    operation = CONTROL.operation_model("CreateAgentRuntime")
    network = request(operation.input_shape, stack.properties("Runtime"))["networkConfiguration"]
    subnets, groups = ([*it.split(",")] for it in given.values())
    config = {"subnets": subnets, "securityGroups": groups}
    assert network == {"networkMode": "VPC", "networkModeConfig": config}
    operation = CONTROL.operation_model("CreateAgentRuntimeEndpoint")
    endpoint = request(operation.input_shape, stack.properties("Stable"))
    assert (endpoint["name"], endpoint["agentRuntimeVersion"]) == ("stable", "7")
    assert "Stable" in stack.resources


def test_an_issuer_has_its_documents_elsewhere() -> None:
    """As the issuer of Azure AD B2C: AgentCore reads the document, and the agent the key set."""
    issuer = "https://contoso.b2clogin.com/11111111-2222-3333-4444-555555555555/v2.0/"
    policy = "https://contoso.b2clogin.com/contoso.onmicrosoft.com/b2c_1_in"
    document = f"{policy}/v2.0/.well-known/openid-configuration"
    keys = f"{policy}/discovery/v2.0/keys"
    given = {"AuthIssuer": issuer, "AuthAudience": "my-agent", "AuthAudienceClaim": "aud"}
    places = {"AuthDiscoveryUrl": document, "AuthJwksUri": keys}
    stack = Stack(project_of("auth"), Image=IMAGE, **given, **places)
    operation = CONTROL.operation_model("CreateAgentRuntime")
    created = request(operation.input_shape, stack.properties("Runtime"))
    jwt = {"discoveryUrl": document, "allowedAudience": ["my-agent"]}
    assert created["authorizerConfiguration"] == {"customJWTAuthorizer": jwt}
    assert stack.environment["AUTH_ISSUER"] == issuer
    assert stack.environment["AUTH_JWKS_URI"] == keys


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", RENDERS)
def test_the_commands_of_the_docs_are_those_of_aws(name: str, tmp_path: Path) -> None:
    project = project_of(name)
    stack = stack_of(project)
    calls = taken_down(project, tmp_path)
    given = [(it.name, commands.given_to(it)) for it in calls if it.words[0] == "aws"]
    invoked = [it for of, it in given if of == "bedrock-agentcore invoke-agent-runtime"]
    if name == "auth":  # by HTTP: AWS signs no request that has a token
        arn = quote(stack.outputs["RuntimeArn"], safe="")
        place = f"https://bedrock-agentcore.{REGION}.amazonaws.com/runtimes/{arn}/invocations"
        curls = [it.words for it in calls if it.words[0] == "curl"]
        assert [words[2] for words in curls] == [f"{place}?qualifier=DEFAULT"] * 2
        assert all("Authorization: Bearer a.b.c" in words for words in curls)
        assert [json.loads(words[-1])["prompt"][:2] for words in curls] == ["My", "Wh"]
    else:
        assert [it["agentRuntimeArn"] for it in invoked] == [stack.outputs["RuntimeArn"]] * 2
    kept = dict(given)["logs put-retention-policy"]
    assert kept["retentionInDays"] == 30
    assert kept["logGroupName"].endswith("/my_agent-0123456789-DEFAULT")
    if "Env" in stack.outputs:
        written = [line.partition("=")[0] for line in (tmp_path / ".env").read_text().splitlines()]
        example = (project / ".env.example").read_text()
        assert all(f"# {variable}=" in example for variable in written), written
        assert set(written) <= stack.environment.keys()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "store"),
    [
        ("strands-python", "valkey"),
        ("vercel-typescript", "s3"),
        pytest.param("strands-python", "s3", marks=pytest.mark.full),
        pytest.param("vercel-typescript", "valkey", marks=pytest.mark.full),
        pytest.param("vercel-typescript", "in-process", marks=pytest.mark.full),
    ],
)
def test_the_role_allows_the_actions_that_iam_prints(target: str, store: str) -> None:
    project = installed(f"{target}+agentcore+runtime", session_store=store, model="bedrock")
    stack = stack_of(project)
    prefix = stack.environment.get("SECRETS_PREFIX", "")
    printed = subprocess.run(
        command(project, "iam"),
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(project), "SECRETS_PREFIX": prefix},
        check=True,
        capture_output=True,
        text=True,
    )
    values = stack.environment | {"AWS_ACCOUNT_ID": ACCOUNT}
    policy = json.loads(Template(printed.stdout).substitute(values))
    wanted = {one["Sid"]: one for one in policy["Statement"]}
    # What stands in a variable is not read from Secrets Manager.
    own = [variable.lower().replace("_", "/") for variable in stack.environment]
    secrets = wanted["Secrets"]["Resource"]
    names = {it: it.rpartition(":")[2].removeprefix(prefix) for it in secrets}
    left = [it for it in secrets if names[it].removesuffix("-??????") not in own]
    wanted["Secrets"]["Resource"] = left
    if not left:
        del wanted["Secrets"]
    allowed = {it: one for it, one in stack.statements.items() if it not in PLATFORM}
    models = [allowed.pop(sid) for sid in ("Model", "ModelOfProfile")]
    guardrail = allowed.pop("Guardrail")
    assert guardrail["Action"] == ["bedrock:ApplyGuardrail"]
    assert guardrail["Resource"] == [
        f"arn:aws:bedrock:{REGION}:{ACCOUNT}:guardrail/{stack.environment['GUARDRAIL_ID']}"
    ]
    assert allowed == wanted
    assert {action for one in models for action in one["Action"]} == model_actions()


@pytest.mark.parametrize(
    ("name", "variable", "parameter", "prefix"),
    [
        ("fallback", "MODEL_FALLBACK", "ModelFallback", "Second"),
        ("compaction", "COMPACTION_MODEL", "CompactionModel", "Compaction"),
        ("knowledge-base", "EXTRACTION_MODEL", "ExtractionModel", "Extraction"),
    ],
)
def test_the_role_allows_both_models(name: str, variable: str, parameter: str, prefix: str) -> None:
    project, other = project_of(name), "global.anthropic.claude-haiku-4-5"
    stack = Stack(project, Image=IMAGE, **{parameter: other})
    first = stack.environment["MODEL"]
    assert stack.environment[variable] == other
    for sid in ("Model", "ModelOfProfile"):
        allowed = json.dumps(stack.statements[sid]).replace(f'"{sid}"', f'"{prefix}{sid}"')
        assert json.dumps(stack.statements[f"{prefix}{sid}"]) == allowed.replace(first, other)
    if name != "fallback":
        without = Stack(project, Image=IMAGE)
        assert without.environment[variable] == ""
        assert not [sid for sid in without.statements if prefix in sid]


def model_actions() -> set[str]:
    """What AWS says that the calls need which the suites see at Bedrock."""
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    operations = map(model.operation_model, model.operation_names)
    (called,) = [
        it
        for it in operations
        if re.fullmatch(Converse.path, re.sub("{.*?}", "id", it.http["requestUri"]))
    ]
    return set(re.findall(r"requires permission for the <code>(bedrock:\w+)", called.documentation))


@pytest.fixture(scope="module")
def guarded() -> Iterator[dict[str, Any]]:
    """How boto3 reaches S3 where policies of roles are enforced, after four calls by anybody."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "4"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for("a port", lambda: _listens(port))
        yield {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": REGION}
    finally:
        server.terminate()
        server.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.full
@pytest.mark.slow
def test_the_role_is_enough_for_sessions_in_s3(guarded: dict[str, Any], tmp_path: Path) -> None:
    variant, answers = RENDERS["s3"]
    project = installed(variant, **answers, model="bedrock")
    stack = stack_of(project)
    statements = [stack.statements[sid] for sid in ("ObjectsSessions", "BucketSessions")]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    root = guarded | {"aws_access_key_id": "root", "aws_secret_access_key": "root"}
    iam = boto3.client("iam", **root)
    role = iam.create_role(RoleName="agent", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    iam.put_role_policy(RoleName="agent", PolicyName="agent", PolicyDocument=policy)
    boto3.client("s3", **root).create_bucket(Bucket=BUCKET)
    session = boto3.client("sts", **root).assume_role(RoleArn=role, RoleSessionName="agent")
    keys = {
        "aws_access_key_id": session["Credentials"]["AccessKeyId"],
        "aws_secret_access_key": session["Credentials"]["SecretAccessKey"],
        "aws_session_token": session["Credentials"]["SessionToken"],
    }
    with pytest.raises(ClientError, match="AccessDenied"):
        boto3.client("s3", **guarded, **keys).list_buckets()
    given = {name.upper(): value for name, value in keys.items()} | stack.environment
    given |= {"AWS_ENDPOINT_URL": guarded["endpoint_url"], "SECRETS_AGENTCORE_MEMORIES": ""}
    del given["MODEL"]
    server = Server(
        target_of(variant, **answers, model="bedrock"), home(project, tmp_path), None, given
    )
    try:
        headers = [
            ("Accept", "application/json"),
            ("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", "first"),
            ("X-Amzn-Bedrock-AgentCore-Runtime-User-Id", "ada"),
        ]
        bodies: list[dict[str, Any]] = [{"prompt": "Hello."}] * 2 + [{"end_session": True}]
        assert [server.post(body, headers).status for body in bodies] == [200] * 3
        wait_for("the lifecycle rule", lambda: "lifecycle rule" in server.log)
        assert "HTTP 403" not in server.log
    finally:
        server.stop()


def home(project: Path, folder: Path) -> Path:
    """A folder with the declarations of a project, in which its server runs."""
    for kind in ("collections", "agents", "iam"):
        (folder / kind).symlink_to(project / kind)
    return folder


def target_of(variant: str, **answers: str) -> Target:
    return Target(
        *(variant, variant, lambda project: command(project, "serve"), lambda _: {}),
        answers=tuple(answers.items()),
    )


class Deployed:
    """A render that runs as the stack says, invoked by AWS's own client for Python."""

    def __init__(self, target: str, service: AgentCore, folder: Path) -> None:
        variant = f"{target}+agentcore+runtime"
        self.project = installed(variant, model="bedrock")
        self.stack = stack_of(self.project)
        shape = CONTROL.operation_model("CreateMemory").input_shape
        wanted = request(shape, self.stack.properties("Memory"))
        created = service.service.call("CreateMemory", wanted)["memory"]["id"]
        environment = {
            name: value.replace(MEMORY, created)
            for name, value in self.stack.environment.items()
            if name != "MODEL"
        }
        self.variables = service.environment() | environment
        self.folder, self.service = home(self.project, folder), service
        self.server = Server(target_of(variant, model="bedrock"), folder, None, self.variables)
        self._client = SESSION.client("bedrock-agentcore")
        self._client.meta.events.register("before-send.bedrock-agentcore", self._pass_on)

    def invoke(self, **given: Any) -> Any:
        return json.load(self._client.invoke_agent_runtime(**given)["response"])

    def _pass_on(self, request: Any, **_: Any) -> AWSResponse:
        """As the service does it: to the path of all agents, with the headers of its own."""
        kept = ("x-amzn-bedrock-agentcore-", "accept", "content-type")
        headers = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
            if name.lower().startswith(kept)
        }
        host, port = self.server.address
        reply = httpx.post(
            f"http://{host}:{port}/invocations", content=request.body, headers=headers
        )
        raw = HTTPResponse(io.BytesIO(reply.content), preload_content=False)
        return AWSResponse(request.url, reply.status_code, dict(reply.headers), raw)

    def check(self) -> str:
        """What `check --connect` prints with what the outputs put into .env."""
        return subprocess.run(
            command(self.project, "check", "--connect"),
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.variables},
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param(it, marks=() if it in USUAL else pytest.mark.full) for it in TARGETS]
)
def test_two_invocations_are_one_session_and_the_role_allows_its_calls(
    target: str,
    agentcore: AgentCore,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "shell").mkdir()
    (tmp_path / "home").mkdir()
    deployed = Deployed(target, agentcore, tmp_path / "home")
    try:
        calls = taken_down(deployed.project, tmp_path / "shell")
        invoked = [
            commands.given_to(it) for it in calls if it.name.endswith("invoke-agent-runtime")
        ]
        first, second = [deployed.invoke(**given) for given in invoked]
        assert (first["turn"], second["turn"]) == (1, 2)
        assert first["session_id"] == second["session_id"] == invoked[0]["runtimeSessionId"]
        assert "My name is Ada." in second["reply"]
        # The headers that the runtime lets through are those that the agent reads.
        actor, key = deployed.stack.properties("Runtime")["RequestHeaderConfiguration"][
            "RequestHeaderAllowlist"
        ]
        replies = [
            deployed.server.post(
                {"prompt": "Hello."},
                [
                    ("Accept", "application/json"),
                    ("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", "another-one"),
                    (actor, "ada"),
                    (key, "1"),
                ],
            )
            for _ in range(2)
        ]
        assert [(reply.status, reply.json["turn"]) for reply in replies] == [(200, 1)] * 2
        wait_for("a Healthy", lambda: deployed.server.get("/ping").json["status"] == "Healthy")
        seen = {it.operation for it in agentcore.calls.of()}
        allowed = deployed.stack.statements
        recall, record = allowed["RecallMemories"], allowed["RecordMemories"]
        actions = {f"bedrock-agentcore:{operation}" for operation in seen - {"CreateMemory"}}
        assert actions == {*recall["Action"], *record["Action"]}
        patterns = recall["Condition"]["StringLike"]["bedrock-agentcore:namespace"]
        namespaces = [it.given["namespace"] for it in agentcore.calls.of("RetrieveMemoryRecords")]
        assert all(any(fnmatch.fnmatch(it, one) for one in patterns) for it in namespaces)
        assert "AML-" not in deployed.check()
        assert agentcore.calls.count("GetMemory") == 1
    finally:
        deployed.server.stop()
