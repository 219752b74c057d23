"""The commands of docs/agentcore.md, run by a shell whose `aws` and `curl` only record them."""

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
from botocore import xform_name

from tests.agentcore.shapes import Check
from tests.deploy.cloudformation import ACCOUNT, REGION

MODELS = botocore.session.get_session()
REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
# What awscli adds to the operations of AWS: their options, and whether each takes values.
CUSTOM: dict[str, dict[str, int]] = {
    "cloudformation deploy": {
        **dict.fromkeys(("stack-name", "template-file", "capabilities", "parameter-overrides"), 1),
        "no-fail-on-empty-changeset": 0,
    },
    "configure get": {},
    "ecr get-login-password": {},
    "s3 cp": {},
    "s3 mb": {},
    "s3 rb": {"force": 0},
}
WAITERS = "cloudformation wait"
GLOBAL = {"query", "output", "region", "profile", "no-paginate"}

STUB = """#!{python}
import json, os, sys
import jmespath
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
typed = sys.stdin.read() if "fileb:///dev/stdin" in words else ""
with open(os.environ["TAKEN_DOWN"], "a") as file:
    file.write(json.dumps([[name, *words], typed]) + "\\n")
reply = json.loads(os.environ["REPLIES"]).get(" ".join(words[:2]))
if "--query" in words:
    reply = jmespath.search(words[words.index("--query") + 1], reply)
    reply = "\\t".join(reply) if isinstance(reply, list) else reply
if reply is not None:
    print(reply)
"""


class Command(NamedTuple):
    words: list[str]
    typed: str

    @property
    def name(self) -> str:
        """The service and its operation."""
        return " ".join(self.words[1:3])

    @property
    def options(self) -> dict[str, list[str]]:
        """Each option with its values; what stands alone is under "" """
        found: dict[str, list[str]] = {"": []}
        option = ""
        for word in self.words[3:]:
            if word.startswith("--"):
                option = word.removeprefix("--")
                assert option not in found, f"{word} is given twice"
                found[option] = []
            else:
                found[option].append(word)
        return found


def block(project: Path) -> str:
    """All lines of docs/agentcore.md that are to be typed, without those that run a script."""
    text = (project / "docs" / "agentcore.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    return textwrap.dedent("\n".join(it for it in lines if "    sh deploy/" not in it)) + "\n"


def run(script: str, folder: Path, replies: dict[str, Any], **variables: str) -> list[Command]:
    """Let a shell run a script in a folder; return what it called."""
    (folder / "bin").mkdir()
    for name in ("aws", "curl"):
        stub = folder / "bin" / name
        stub.write_text(STUB.replace("{python}", sys.executable))
        stub.chmod(0o755)
    taken_down = folder / "taken_down"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        check=True,
        env={
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TAKEN_DOWN": str(taken_down),
            "REPLIES": json.dumps(replies),
            **variables,
        },
    )
    return [Command(*json.loads(line)) for line in taken_down.read_text().splitlines()]


def service_of(command: Command) -> Any:
    """AWS's model of the service of a command."""
    name = {"s3api": "s3"}.get(command.words[1], command.words[1])
    assert name in MODELS.get_available_services(), f"no such service: {shlex.join(command.words)}"
    return MODELS.get_service_model(name)


def given_to(command: Command) -> dict[str, Any]:
    """The parameters of a command of `aws`, which AWS's own model of the operation allows."""
    shown = shlex.join(command.words)
    options = command.options
    if command.name in CUSTOM:
        allowed = CUSTOM[command.name]
        assert options.keys() - GLOBAL - {""} <= allowed.keys(), f"unknown option: {shown}"
        found = {name: words for name, words in options.items() if name in allowed}
        assert all(bool(words) == bool(allowed[name]) for name, words in found.items()), shown
        return found
    model, operation = service_of(command), command.words[2]
    if command.name == WAITERS:
        (waiter,) = options.pop("")
        waiters = MODELS.get_waiter_model(model.service_name)
        named = {xform_name(name, "-"): name for name in waiters.waiter_names}
        assert waiter in named, f"no such waiter: {shown}"
        operation = xform_name(waiters.get_waiter(named[waiter]).operation, "-")
    names = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in names, f"no such operation: {shown}"
    called = model.operation_model(names[operation])
    members = {xform_name(name, "-"): name for name in called.input_shape.members}
    given: dict[str, Any] = {}
    has_file = called.has_streaming_output  # the name of the file that gets it
    for option, words in options.items():
        if option in GLOBAL or not option:
            continue
        assert option in members, f"no such option, --{option}: {shown}"
        shape = called.input_shape.members[members[option]]
        if shape.type_name == "boolean":
            values: Any = not words
        elif shape.type_name == "list" and shape.member.type_name == "structure":
            values = [_shorthand(shape.member, word) for word in words]
        elif shape.type_name == "list":
            values = words
        else:
            values, *rest = words or [""]
            given_file = rest if has_file else []
            has_file = has_file and not given_file
            assert rest == given_file, f"too many words after --{option}: {shown}"
        if values == "file:///dev/stdin":
            values = command.typed
        if shape.type_name == "integer":
            values = int(values)
        if shape.type_name == "blob":
            assert values == "fileb:///dev/stdin"
            values = command.typed.encode()
        given[members[option]] = values
    assert not has_file or options[""], f"its output needs a file: {shown}"
    check = Check()
    check.write(called.input_shape, given)
    assert (check.problems, check.unknown) == ([], []), shown
    return given


def _shorthand(shape: Any, word: str) -> dict[str, Any]:
    """A structure in the shorthand of `aws`, such as `Key=name,Values=a,b`."""
    found: dict[str, list[str]] = {}
    for part in word.split(","):
        name, is_member, value = part.rpartition("=")
        if is_member:
            found[name] = []
        found[[*found][-1]].append(value)
    lists = {name for name in found if shape.members[name].type_name == "list"}
    assert all(len(values) == 1 for name, values in found.items() if name not in lists), word
    return {name: values if name in lists else values[0] for name, values in found.items()}
