"""An AWS account for the scripts in deploy/, and the other programs that they call.

`aws`, `docker` and the others on PATH hand each call to the account in the test process. It checks
calls of `aws` against AWS's own models, keeps resources, and replies as AWS does.
"""

import copy
import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jmespath
from botocore import xform_name

from tests.agentcore.shapes import Check
from tests.deploy.cloudformation import ACCOUNT, CREATED, REGION, Stack
from tests.deploy.commands import (
    CUSTOM,
    REGISTRY,
    WAITERS,
    Command,
    given_to,
    service_of,
)

PROGRAMS = ("aws", "curl", "docker", "npm", "sleep", "uv")
STUB = """#!{python} -IS
import json, os, socket, sys
words = sys.argv[1:]
has_input = any("/dev/stdin" in word for word in words) or "--password-stdin" in words
has_input = has_input or "--config" in words
call = {"words": [os.path.basename(sys.argv[0]), *words]}
call["typed"] = sys.stdin.read() if has_input else ""
with socket.create_connection(("127.0.0.1", int(os.environ["ACCOUNT"]))) as connection:
    connection.sendall(json.dumps(call).encode() + b"\\n")
    reply = json.loads(connection.makefile().read())
sys.stdout.write(reply["output"])
sys.stderr.write(reply["errors"])
sys.exit(reply["code"])
"""
NOW = datetime(2026, 1, 2, tzinfo=UTC)
PASSWORD = "a-password"
# The resources of a stack that it does not delete, and the value of CREATED with the physical id.
PHYSICAL = {
    "DataSource": "DataSource.DataSourceId",
    "KnowledgeBase": "KnowledgeBase",
    "KnowledgeBaseRole": "KnowledgeBaseRole",
    "Memory": "Memory.MemoryArn",
    "Sessions": "Sessions",
    "VectorIndex": "VectorIndex.IndexArn",
    "Vectors": "Vectors.VectorBucketArn",
}
RUNTIME = CREATED["Runtime.AgentRuntimeArn"]
RUNTIME_ID = CREATED["Runtime.AgentRuntimeId"]
LOGS = f"/aws/bedrock-agentcore/runtimes/{RUNTIME.rpartition('/')[2]}-DEFAULT"
# Calls that read; all others change something.
READS = ("aws configure", "aws ecr get-login-password", "sleep")
READING = ("get-", "describe-", "head-", "list-", "wait")


class RefusalError(Exception):
    """An error of AWS."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class Ran(NamedTuple):
    code: int
    output: str
    errors: str


def changes(calls: list[Command]) -> list[str]:
    """Those of the calls that may have changed something, as typed."""
    shown = [
        (" ".join(it.words), it.words[-1 if len(it.words) < 3 else 2].startswith(READING))
        for it in calls
    ]
    return [text for text, is_reading in shown if not (is_reading or text.startswith(READS))]


@dataclass
class Account:
    """What exists in the account, and how it behaves."""

    folder: Path
    buckets: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    repositories: dict[str, set[str]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)  # of secrets
    scheduled: set[str] = field(default_factory=set)  # secrets that are deleted after some days
    unlisted: set[str] = field(default_factory=set)  # secrets that the list does not have yet
    stack: dict[str, Any] | None = None
    # The resources of deleted stacks, by the stack's id: their physical ids and statuses.
    deleted: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    # The resources that updates left outside the stack, as their names and physical ids.
    skipped: list[tuple[str, str]] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    remaining: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    calls: list[Command] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    logged_in: bool = False
    pending: int = 0
    refused: str = ""
    is_invalid: bool = False
    is_silent: bool = False
    fails_at: int = -1
    is_reply_lost: bool = False
    region: str = REGION
    port: int = 0

    @property
    def contents(self) -> dict[str, Any]:
        """What exists, without the history of calls."""
        stack = self.stack and {"status": self.stack["status"], **self.stack["parameters"]}
        return {
            "buckets": {name: sorted(keys) for name, keys in self.buckets.items()},
            "repositories": {name: sorted(tags) for name, tags in self.repositories.items()},
            "secrets": {it: v for it, v in self.secrets.items() if it not in self.scheduled},
            "stack": stack,
            "remaining": dict(self.remaining),
            "logs": sorted(self.groups),
        }

    @property
    def artifact(self) -> Any:
        """The zip file or image that runs."""
        return self.artifacts[-1]

    def save(self) -> dict[str, Any]:
        """A copy of what exists."""
        names = ["buckets", "repositories", "secrets", "stack", "artifacts", "remaining", "groups"]
        names += ["reasons", "descriptions", "scheduled", "deleted", "skipped"]
        return copy.deepcopy({name: getattr(self, name) for name in names})

    def restore(self, saved: dict[str, Any]) -> None:
        """Return to what existed, and forget the calls."""
        for name, value in copy.deepcopy(saved).items():
            setattr(self, name, value)
        self.calls, self.pending, self.fails_at = [], 0, -1

    def run(self, project: Path, *words: str, typed: str = "", **variables: str) -> Ran:
        """Run a command of a project."""
        self.logged_in = False
        program = ["sh", "-c", typed] if typed else ["dash", *words]
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "ACCOUNT": str(self.port), "HOME": str(self.folder)}
        ran = subprocess.run(
            program, cwd=project, env=environment | variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        assert not self.problems, self.problems
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    # Replies ----------------------------------------------------------------------------------

    def reply(self, call: dict[str, Any]) -> dict[str, Any]:
        command = Command(call["words"], call["typed"])
        number = len(self.calls)
        self.calls.append(command)
        is_failing = number == self.fails_at and command.words[0] != "sleep"
        if is_failing and not self.is_reply_lost:
            return {"output": "", "errors": "Could not connect\n", "code": 1}
        try:
            output = self._answer(command)
        except RefusalError as error:
            if is_failing:
                return {"output": "", "errors": "Lost the connection\n", "code": 1}
            operation = "".join(part.title() for part in command.name.split(" ")[-1].split("-"))
            text = f"\nAn error occurred ({error.code}) when calling the {operation} operation: "
            return {"output": "", "errors": f"{text}{error}\n", "code": 254}
        except Exception as error:
            self.problems.append(f"{' '.join(command.words)}: {error!r}")
            return {"output": "", "errors": repr(error), "code": 1}
        if is_failing:
            return {"output": "", "errors": "Lost the connection\n", "code": 1}
        return {"output": output, "errors": "", "code": 0}

    def _answer(self, command: Command) -> str:
        program = command.words[0]
        if program == "sleep":
            return ""
        if program != "aws":
            getattr(self, f"_{program}")(command)
            return ""
        given = given_to(command)
        name = command.name
        found = getattr(self, "_" + name.replace(" ", "_").replace("-", "_"))(command, given)
        if name in CUSTOM or name == WAITERS:
            return f"{found}\n" if found else ""
        return self._text(command, found or {})

    def _text(self, command: Command, reply: dict[str, Any]) -> str:
        """A reply of an operation, checked by its model, as --output text prints it."""
        model = service_of(command)
        (name,) = [it for it in model.operation_names if xform_name(it, "-") == command.words[2]]
        shape = model.operation_model(name).output_shape
        check = Check()
        shown = check.write(shape, reply) if shape else {}
        assert not [*check.problems, *check.unknown], [*check.problems, *check.unknown]
        options = command.options
        if "query" not in options:
            return json.dumps(shown) + "\n" if shown else ""
        found = jmespath.search(options["query"][0], shown)
        if isinstance(found, list):
            rows = found if all(isinstance(it, list) for it in found) else [found]
            found = "\n".join("\t".join(map(str, row)) for row in rows)
        return f"{found}\n"

    # Other programs ---------------------------------------------------------------------------

    def _npm(self, command: Command) -> None:
        assert command.words[1:3] == ["ci", "--prefix"]
        assert (Path(command.words[3]) / "package-lock.json").is_file()

    def _uv(self, command: Command) -> None:
        if command.words[1] == "export":
            assert (Path(command.options["project"][0]) / "uv.lock").is_file()
            assert command.words[-2] == "-o"
            Path(command.words[-1]).write_text("anyio==4\n")
        else:
            assert Path(command.words[-1]).is_file()

    def _docker(self, command: Command) -> None:
        if command.words[1] == "login":
            assert command.words[-1] == REGISTRY
            assert command.typed.strip() == PASSWORD
            self.logged_in = True
        else:
            assert self.logged_in
            assert command.words[2:5] == ["build", "--platform", "linux/arm64"]
            (context,) = command.options["push"]
            assert (Path(context) / "Dockerfile").is_file()
            repository, _, tag = command.options["tag"][0].rpartition(":")
            self.repositories[repository.removeprefix(f"{REGISTRY}/")].add(tag)

    def _curl(self, command: Command) -> None:
        assert command.typed == 'header = "Authorization: Bearer a.b.c"\n'
        assert "a.b.c" not in " ".join(command.words)
        place = command.words[command.words.index("--output") + 1]
        self._invoked(Path(place))

    # Operations -------------------------------------------------------------------------------

    def _configure_get(self, _command: Command, _given: Any) -> str:
        return self.region

    def _sts_get_caller_identity(self, _command: Command, _given: Any) -> Any:
        return {"Account": ACCOUNT}

    def _s3api_head_bucket(self, _command: Command, given: Any) -> Any:
        assert given["ExpectedBucketOwner"] == ACCOUNT
        if given["Bucket"] not in self.buckets:
            raise RefusalError("404", "Not Found")
        return {"BucketRegion": REGION}

    def _s3api_head_object(self, _command: Command, given: Any) -> Any:
        if given["Key"] not in self.buckets.get(given["Bucket"], {}):
            raise RefusalError("404", "Not Found")
        return {}

    def _s3_mb(self, command: Command, _given: Any) -> None:
        (place,) = command.options[""]
        name = place.removeprefix("s3://")
        assert len(name) <= 63
        assert name not in self.buckets
        self.buckets[name] = {}

    def _s3_cp(self, command: Command, _given: Any) -> None:
        file, place = command.options[""]
        bucket, _, key = place.removeprefix("s3://").partition("/")
        shutil.copy(file, self.folder / "uploaded.zip")
        with zipfile.ZipFile(file) as archive:
            self.buckets[bucket][key] = archive.namelist()

    def _s3_rb(self, command: Command, given: Any) -> None:
        (place,) = command.options[""]
        assert "force" in given
        name = place.removeprefix("s3://")
        if name == self.remaining.get("Sessions"):
            del self.remaining["Sessions"]
        else:
            del self.buckets[name]

    def _ecr_get_login_password(self, _command: Command, _given: Any) -> str:
        return PASSWORD

    def _repository(self, name: str) -> set[str]:
        if name not in self.repositories:
            raise RefusalError("RepositoryNotFoundException")
        return self.repositories[name]

    def _ecr_describe_repositories(self, _command: Command, given: Any) -> Any:
        (name,) = given["repositoryNames"]
        self._repository(name)
        return {"repositories": [{"repositoryName": name}]}

    def _ecr_describe_images(self, _command: Command, given: Any) -> Any:
        ((tag,),) = [it.values() for it in given["imageIds"]]
        if tag not in self._repository(given["repositoryName"]):
            raise RefusalError("ImageNotFoundException")
        return {"imageDetails": [{"imageTags": [tag]}]}

    def _ecr_create_repository(self, _command: Command, given: Any) -> None:
        assert given["repositoryName"] not in self.repositories
        self.repositories[given["repositoryName"]] = set()

    def _ecr_delete_repository(self, _command: Command, given: Any) -> None:
        assert given["force"]
        del self.repositories[given["repositoryName"]]

    def _described(self, name: str) -> dict[str, Any]:
        described: dict[str, Any] = {"Name": name}
        if name in self.descriptions:
            described["Description"] = self.descriptions[name]
        if name in self.scheduled:
            described["DeletedDate"] = NOW
        return described

    def _secretsmanager_describe_secret(self, _command: Command, given: Any) -> Any:
        if given["SecretId"] not in self.secrets:
            raise RefusalError("ResourceNotFoundException")
        return self._described(given["SecretId"])

    def _secretsmanager_list_secrets(self, _command: Command, given: Any) -> Any:
        """A filter by name is a prefix; the list may lack what changed in the last minutes."""
        (filter,) = given["Filters"]
        assert filter["Key"] == "name"
        found = [it for it in self.secrets if it.startswith(tuple(filter["Values"]))]
        is_listed = {*found} - self.scheduled - self.unlisted
        return {"SecretList": [self._described(it) for it in found if it in is_listed]}

    def _secretsmanager_create_secret(self, command: Command, given: Any) -> None:
        assert given["Name"] not in self.secrets
        assert given["SecretString"] == command.typed != ""
        self.secrets[given["Name"]] = given["SecretString"]
        self.descriptions[given["Name"]] = given["Description"]

    def _secretsmanager_delete_secret(self, _command: Command, given: Any) -> None:
        name = given["SecretId"]
        assert name in self.secrets
        if not given.get("ForceDeleteWithoutRecovery"):
            assert name not in self.scheduled
            self.scheduled.add(name)
            return
        del self.secrets[name]
        self.descriptions.pop(name, None)

    def _found(self) -> dict[str, Any]:
        if self.stack is None:
            raise RefusalError("ValidationError", "Stack with id my-agent does not exist")
        return self.stack

    @property
    def _stack_id(self) -> str:
        return f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/my-agent/{len(self.deleted)}"

    def _cloudformation_describe_stacks(self, _command: Command, given: Any) -> Any:
        found = self._found()
        outputs: dict[str, str] = {}
        if self.artifacts and "ROLLBACK" not in found["status"]:
            version = str(len(self.artifacts))
            outputs = {"RuntimeArn": RUNTIME, "RuntimeVersion": version}
        described = {
            "StackName": given["StackName"],
            "StackId": self._stack_id,
            "CreationTime": NOW,
            "StackStatus": found["status"],
            "Parameters": [
                {"ParameterKey": name, "ParameterValue": value}
                for name, value in found["parameters"].items()
            ],
            "Outputs": [{"OutputKey": it, "OutputValue": v} for it, v in outputs.items()],
        }
        return {"Stacks": [described]}

    def _stack_named(self, name: str) -> dict[str, tuple[str, str]]:
        """The resources of the stack, or of a deleted stack by its id, with their statuses."""
        if name in self.deleted:
            return self.deleted[name]
        kept = {it: CREATED[PHYSICAL[it]] for it in self._resources() if it in PHYSICAL}
        physical = kept | ({"Runtime": RUNTIME_ID} if "Runtime" in self._resources() else {})
        return {it: (id, "CREATE_COMPLETE") for it, id in physical.items()}

    def _cloudformation_describe_stack_resources(self, _command: Command, given: Any) -> Any:
        listed = [
            {
                "LogicalResourceId": name,
                "PhysicalResourceId": id,
                "ResourceType": "AWS::Any::Type",
                "Timestamp": NOW,
                "ResourceStatus": status,
            }
            for name, (id, status) in self._stack_named(given["StackName"]).items()
        ]
        return {"StackResources": listed}

    def _cloudformation_list_stacks(self, _command: Command, given: Any) -> Any:
        assert given["StackStatusFilter"] == ["DELETE_COMPLETE"]
        usual = {"CreationTime": NOW, "StackStatus": "DELETE_COMPLETE"}
        other = {**usual, "StackName": "my-agent-2", "StackId": "another"}
        own = [{**usual, "StackName": "my-agent", "StackId": it} for it in self.deleted]
        return {"StackSummaries": [other, *own]}

    def _resources(self) -> dict[str, Any]:
        found = self._found()
        return found["stack"].resources if "stack" in found else {}

    def _cloudformation_describe_stack_events(self, _command: Command, given: Any) -> Any:
        name = given["StackName"]
        if name not in self.deleted:
            self._found()
        usual = {"StackId": "s", "StackName": "my-agent", "Timestamp": NOW}
        skipped = [
            {
                **usual,
                "EventId": f"{resource}-{number}",
                "LogicalResourceId": resource,
                "PhysicalResourceId": id,
                "ResourceStatus": "DELETE_SKIPPED",
            }
            for number, (resource, id) in enumerate(self.skipped)
        ]
        events = [
            {
                **usual,
                "EventId": str(number),
                "ResourceStatus": "UPDATE_FAILED",
                "ResourceStatusReason": reason,
            }
            for number, reason in enumerate(self.reasons)
        ]
        return {"StackEvents": [*skipped, *events][::-1]}

    def _cloudformation_get_template(self, _command: Command, _given: Any) -> Any:
        return {"TemplateBody": self._found()["template"]}

    def _cloudformation_deploy(self, _command: Command, given: Any) -> None:
        assert given["capabilities"] == ["CAPABILITY_IAM"]
        status = self.stack and self.stack["status"]
        assert status != "ROLLBACK_COMPLETE", "this stack can only be deleted"
        if self.is_invalid:
            raise RefusalError("ValidationError", "Parameter Model failed to satisfy constraint")
        file = Path(given["template-file"][0])
        template = (self.folder / "project" / file).read_text()
        changed = dict(word.split("=", 1) for word in given["parameter-overrides"])
        parameters = {**(self.stack["parameters"] if self.stack else {}), **changed}
        kept = Path(tempfile.mkdtemp(dir=self.folder))
        (kept / "deploy").mkdir()
        (kept / "deploy" / "agentcore.yaml").write_text(template)
        stack = Stack(kept, **parameters)
        assert stack.refusals == []
        if self.refused:
            self.reasons += [self.refused, "Resource update cancelled"]
            defaults = {n: it["Default"] for n, it in stack.parameters.items() if "Default" in it}
            self.stack = self.stack or {
                "status": "ROLLBACK_COMPLETE", "parameters": defaults | parameters, "template": "",
            }  # fmt: skip
            raise RefusalError("ValidationError", "Failed to create/update the stack")
        artifact = stack.properties("Runtime")["AgentRuntimeArtifact"]
        self._check_artifact(artifact)
        for name in self._secrets_of(stack):
            assert name in self.secrets, "the secret is missing"
        before = self.stack["stack"].resources if self.stack and "stack" in self.stack else {}
        self._keep({it: one for it, one in before.items() if it not in stack.resources})
        is_changed = not self.stack or self.stack["parameters"] != parameters
        self.stack = {
            "status": "UPDATE_COMPLETE" if self.stack else "CREATE_COMPLETE",
            "parameters": parameters,
            "template": template,
            "stack": stack,
        }
        if is_changed:
            self.artifacts.append(artifact)
            self.pending = 2

    def _check_artifact(self, artifact: Any) -> None:
        if "CodeConfiguration" in artifact:
            place = artifact["CodeConfiguration"]["Code"]["S3"]
            assert place["Prefix"] in self.buckets[place["Bucket"]]
        else:
            image = artifact["ContainerConfiguration"]["ContainerUri"]
            repository, _, tag = image.removeprefix(f"{REGISTRY}/").rpartition(":")
            assert tag in self.repositories[repository]

    def _secrets_of(self, stack: Stack) -> list[str]:
        resolve = "{{resolve:secretsmanager:"
        found = [it for it in stack.environment.values() if it.startswith(resolve)]
        return [it.removeprefix(resolve).removesuffix("}}") for it in found]

    def _keep(self, resources: dict[str, Any]) -> None:
        """Let those of the deleted resources remain that the template says."""
        for name, it in resources.items():
            if "Retain" in it.get("DeletionPolicy", "") and name in PHYSICAL:
                self.remaining[name] = CREATED[PHYSICAL[name]]
                self.skipped.append((name, CREATED[PHYSICAL[name]]))

    def _cloudformation_delete_stack(self, _command: Command, _given: Any) -> None:
        if not self.stack:
            return
        resources = self._stack_named("my-agent")
        self._keep(self._resources())
        self.deleted[self._stack_id] = {
            name: (physical, "DELETE_SKIPPED" if name in self.remaining else "DELETE_COMPLETE")
            for name, (physical, _) in resources.items()
        }
        self.stack, self.artifacts, self.reasons = None, [], []

    def _cloudformation_wait(self, command: Command, _given: Any) -> None:
        assert command.words[3] == "stack-delete-complete"
        assert self.stack is None

    def _runtime(self, number: int) -> dict[str, Any]:
        if not self.artifacts:
            raise RefusalError("ResourceNotFoundException")
        artifact = self.artifacts[number - 1]
        if "CodeConfiguration" in artifact:
            code = artifact["CodeConfiguration"]
            place = code["Code"]["S3"]
            s3 = {"bucket": place["Bucket"], "prefix": place["Prefix"]}
            configuration: Any = {
                "codeConfiguration": {
                    "code": {"s3": s3},
                    "runtime": code["Runtime"],
                    "entryPoint": code["EntryPoint"],
                }
            }
        else:
            image = artifact["ContainerConfiguration"]["ContainerUri"]
            configuration = {"containerConfiguration": {"containerUri": image}}
        return {"agentRuntimeArtifact": configuration, **self._summary(number)}

    def _summary(self, number: int) -> dict[str, Any]:
        return {
            "agentRuntimeArn": RUNTIME,
            "agentRuntimeId": RUNTIME.rpartition("/")[2],
            "agentRuntimeName": "my_agent",
            "agentRuntimeVersion": str(number),
            "lastUpdatedAt": NOW,
            "status": "READY",
        }

    def _bedrock_agentcore_control_list_agent_runtimes(self, _command: Command, _given: Any) -> Any:
        return {"agentRuntimes": []}

    def _bedrock_agentcore_control_list_agent_runtime_versions(
        self, _command: Command, _given: Any
    ) -> Any:
        numbers = range(len(self.artifacts), 0, -1)
        listed = [{"description": "agent", **self._summary(it)} for it in numbers]
        return {"agentRuntimes": listed}

    def _bedrock_agentcore_control_get_agent_runtime(self, _command: Command, given: Any) -> Any:
        more = {
            "createdAt": NOW,
            "roleArn": CREATED["Role.Arn"],
            "lifecycleConfiguration": {},
        }
        return {**more, **self._runtime(int(given["agentRuntimeVersion"]))}

    def _bedrock_agentcore_control_get_agent_runtime_endpoint(
        self, _command: Command, given: Any
    ) -> Any:
        assert given["endpointName"] == "DEFAULT"
        self.pending = max(self.pending - 1, 0)
        version = len(self.artifacts) - bool(self.pending)
        live = {"liveVersion": str(version)} if version else {}
        return {
            "agentRuntimeArn": RUNTIME,
            "agentRuntimeEndpointArn": f"{RUNTIME}/runtime-endpoint/DEFAULT",
            "status": "UPDATING" if self.pending else "READY",
            "createdAt": NOW,
            "lastUpdatedAt": NOW,
            "name": "DEFAULT",
            "id": "default-0123456789",
            **live,
        }

    def _bedrock_agentcore_invoke_agent_runtime(self, command: Command, given: Any) -> Any:
        assert given["agentRuntimeArn"] == RUNTIME
        assert json.loads(given["payload"])["prompt"]
        has_memory = bool({"KnowledgeBase", "Memory"} & self._resources().keys())
        if has_memory and "runtimeUserId" not in given:
            # The agent's `actor_required`, as AgentCore shows it to callers.
            raise RefusalError("RuntimeClientError", "Received error (400) from runtime")
        assert has_memory or "runtimeUserId" not in given, "this needs one more permission"
        self._invoked(Path(command.options["payload"][1]))
        return {"statusCode": 200, "contentType": "application/json"}

    def _invoked(self, file: Path) -> None:
        assert not self.pending, "the version is not ready"
        self.groups.add(LOGS)
        if self.is_silent:
            raise RefusalError("RuntimeClientError", "Received error (502) from runtime")
        file.write_text('{"reply":"You said: Hello."}')

    def _logs_describe_log_groups(self, _command: Command, given: Any) -> Any:
        prefix = given["logGroupNamePrefix"]
        return {"logGroups": [{"logGroupName": it} for it in self.groups if it.startswith(prefix)]}

    def _logs_delete_log_group(self, _command: Command, given: Any) -> None:
        self.groups.remove(given["logGroupName"])

    def _bedrock_agentcore_control_delete_memory(self, _command: Command, given: Any) -> Any:
        assert self.remaining.pop("Memory").endswith(f"/{given['memoryId']}")
        return {"memoryId": given["memoryId"]}

    def _bedrock_agent_delete_knowledge_base(self, _command: Command, given: Any) -> Any:
        # The knowledge base deletes its vectors from the index, as its role.
        assert self.remaining.keys() >= {"KnowledgeBaseRole", "VectorIndex"}
        assert self.remaining.pop("KnowledgeBase") == given["knowledgeBaseId"]
        del self.remaining["DataSource"]
        self.pending = 2
        return {"knowledgeBaseId": given["knowledgeBaseId"], "status": "DELETING"}

    def _bedrock_agent_get_knowledge_base(self, _command: Command, given: Any) -> Any:
        self.pending -= 1
        if self.pending <= 0:
            raise RefusalError("ResourceNotFoundException")
        return {"knowledgeBase": {
            "knowledgeBaseId": given["knowledgeBaseId"], "name": "facts", "status": "DELETING",
            "knowledgeBaseArn": CREATED["KnowledgeBase.KnowledgeBaseArn"], "createdAt": NOW,
            "roleArn": CREATED["KnowledgeBaseRole.Arn"], "updatedAt": NOW,
            "knowledgeBaseConfiguration": {"type": "VECTOR"},
        }}  # fmt: skip

    def _s3vectors_delete_index(self, _command: Command, given: Any) -> None:
        assert "KnowledgeBase" not in self.remaining
        assert self.pending <= 0
        assert self.remaining.pop("VectorIndex") == given["indexArn"]

    def _s3vectors_delete_vector_bucket(self, _command: Command, given: Any) -> None:
        assert "VectorIndex" not in self.remaining
        assert self.remaining.pop("Vectors") == given["vectorBucketArn"]

    def _iam_delete_role_policy(self, _command: Command, given: Any) -> None:
        assert "KnowledgeBase" not in self.remaining
        assert given["RoleName"] == self.remaining["KnowledgeBaseRole"]
        assert given["PolicyName"] == "knowledge-base"
        self.remaining["KnowledgeBaseRole"] = "without a policy"

    def _iam_delete_role(self, _command: Command, _given: Any) -> None:
        assert self.remaining.pop("KnowledgeBaseRole") == "without a policy"


@contextmanager
def opened(folder: Path) -> Iterator[Account]:
    """An empty account, with its programs in the folder `bin`."""
    account = Account(folder)
    (folder / "bin").mkdir(parents=True)
    for name in PROGRAMS:
        stub = folder / "bin" / name
        stub.write_text(STUB.replace("{python}", sys.executable))
        stub.chmod(0o755)
    lock = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with lock:
                reply = account.reply(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps(reply).encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        account.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield account
        finally:
            server.shutdown()
