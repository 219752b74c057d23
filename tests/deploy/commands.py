"""The commands of docs/agentcore.md, run by a shell whose `aws` and `docker` only record them."""

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
# What awscli adds to the operations of AWS: their options, and whether each takes a value.
CUSTOM = {
    "cloudformation deploy": {
        **dict.fromkeys(("stack-name", "template-file"), 1),
        **dict.fromkeys(("capabilities", "parameter-overrides"), 9),
    },
    "ecr get-login-password": {},
}
GLOBAL = {"query", "output", "region", "profile"}

STUB = """#!{python}
import json, os, sys
import jmespath
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
typed = sys.stdin.read() if "fileb:///dev/stdin" in words or "--password-stdin" in words else ""
with open(os.environ["TAKEN_DOWN"], "a") as file:
    file.write(json.dumps([[name, *words], typed]) + "\\n")
if " ".join([name, *words]).startswith(os.environ["FAILS"]):
    sys.exit(1)
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


def section(project: Path) -> str:
    """What docs/agentcore.md says before the section about a zip file."""
    text = (project / "docs" / "agentcore.md").read_text()
    return text.partition("\n## Without Docker\n")[0]


def block(project: Path) -> str:
    """All lines of that section that are to be typed."""
    lines = [line for line in section(project).splitlines() if line.startswith("    ")]
    return textwrap.dedent("\n".join(lines)) + "\n"


def run(
    script: str, folder: Path, replies: dict[str, Any], fails: str = "", **variables: str
) -> list[Command]:
    """Let a shell run a script in a folder; return what it called.

    The command that begins like `fails` fails, and then the shell goes on, as a terminal does.
    """
    (folder / "bin").mkdir()
    for name in ("aws", "docker", "curl"):
        stub = folder / "bin" / name
        stub.write_text(STUB.replace("{python}", sys.executable))
        stub.chmod(0o755)
    taken_down = folder / "taken_down"
    subprocess.run(
        ["bash", *([] if fails else ["-euo", "pipefail"]), "-c", script],
        cwd=folder,
        check=not fails,
        env={
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TAKEN_DOWN": str(taken_down),
            "REPLIES": json.dumps(replies),
            "FAILS": fails or "none",
            **variables,
        },
    )
    return [Command(*json.loads(line)) for line in taken_down.read_text().splitlines()]


def given_to(command: Command) -> dict[str, Any]:
    """The parameters of a command of `aws`, which AWS's own model of the operation allows."""
    shown = shlex.join(command.words)
    options = command.options
    if command.name in CUSTOM:
        allowed = CUSTOM[command.name]
        assert options.keys() - GLOBAL - {""} <= allowed.keys(), f"unknown option: {shown}"
        return {name: words for name, words in options.items() if name in allowed}
    service, operation = command.words[1:3]
    assert service in MODELS.get_available_services(), f"no such service: {shown}"
    model = MODELS.get_service_model(service)
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
        elif shape.type_name == "list":
            values = words
        else:
            values, *rest = words or [""]
            given_file = rest if has_file else []
            has_file = has_file and not given_file
            assert rest == given_file, f"too many words after --{option}: {shown}"
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
