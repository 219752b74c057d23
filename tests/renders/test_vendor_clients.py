"""The clients of vendors: when they are imported, what they load once, and where keys travel."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.provider import Provider
from tests.conformance.targets import TARGETS, VENDOR_TARGETS, Target
from tests.installed import NODE, installed

pytestmark = pytest.mark.slow

EVERY = [target for target in [*TARGETS, *VENDOR_TARGETS] if "gateway" not in target.name]


def rows(targets: list[Target]) -> list[Any]:
    """One for each; a usual run has the client of one vendor."""
    return [
        pytest.param(target, id=target.name, marks=() if target in TARGETS else pytest.mark.full)
        for target in targets
    ]


PYTHON = rows([target for target in EVERY if "python" in target.name])
TYPESCRIPT = rows([target for target in [*TARGETS, *VENDOR_TARGETS] if "typ" in target.name])
WITH_ADDRESS = rows([target for target in EVERY if "bedrock" not in target.name])

IMPORTS = """
import json, sys
from my_agent.main import cli
try:
    cli(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
TYPESCRIPT_IMPORTS = """
import { registerHooks } from 'node:module'
const seen = new Set()
const load = (url, context, next) => {
  seen.add(/.*node_modules\\/((@[^/]+\\/)?[^/]+)/.exec(url)?.[1] ?? 'own')
  return next(url, context)
}
registerHooks({ load })
process.on('exit', () => console.log(JSON.stringify([...seen])))
process.argv.splice(1, 0, 'main.ts')
await import(process.cwd() + '/src/main.ts')
"""
TURNS = """
import asyncio, json, ssl
counts, load, made = [], ssl.SSLContext.load_verify_locations, []
def counted(*args, **kwargs):
    made.append(args)
    return load(*args, **kwargs)
ssl.SSLContext.load_verify_locations = counted
from my_agent.harness import TurnRequest
from my_agent.harness.enabled import Settings
from my_agent.harness.runtime import Runtime
from my_agent.main import app

async def main():
    runtime = Runtime(Settings(model="test-model"), app.load())
    await runtime.open()
    for number in range(4):
        result = await runtime.spawn(TurnRequest("s", "Hello."))
        assert result.reply == "You said: Hello.", result
        counts.append(len(made))

asyncio.run(main())
print(json.dumps(counts))
"""
PYTHON_CHECK = """
import json, os, sys
from my_agent.harness.enabled import Settings
from my_agent.model import check_model
found = []
for variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    found.append([one["id"] + " " + one["severity"] for one in check_model(Settings(model="m"))])
print(json.dumps(found))
"""
TYPESCRIPT_CHECK = """
const load = (name) => import(process.cwd() + '/src/' + name + '.ts')
const { checkModel } = await load('model')
const { createSettings } = await load('harness/settings')
const found = []
for (const variables of JSON.parse(process.argv[1])) {
  Object.assign(process.env, variables)
  const findings = await checkModel(createSettings({ model: 'm' }))
  found.push(findings.map(({ id, severity }) => `${id} ${severity}`))
}
console.log(JSON.stringify(found))
"""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    provider = Provider()
    yield provider.origin
    provider.close()


def run(target: Target, script: str, *words: str, **environment: str) -> Any:
    """What a script prints last, in a process of a render."""
    project = installed(target.variant)
    is_python = "python" in target.name
    node = [str(NODE), "--input-type=module", "-e"]
    command = [str(project / ".venv" / "bin" / "python"), "-c"] if is_python else node
    done = subprocess.run(
        [*command, script, *(words if is_python else ["--", *words])],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", [pytest.param("--help", marks=pytest.mark.full), "check"])
@pytest.mark.parametrize("target", PYTHON)
def test_no_client_is_imported_for_a_command_that_calls_nothing(
    target: Target, command: str
) -> None:
    vendors = {"anthropic", "openai", "litellm", "mistralai", "aioboto3", "aiobotocore"}
    asks = command == "check" and "bedrock" in target.name  # for a region and credentials
    if "strands" not in target.name and not asks:  # Strands imports them itself
        vendors |= {"boto3", "botocore"}
    modules = run(target, IMPORTS, command, **target.provider("http://127.0.0.1:1"))
    assert vendors & {*modules} == set()


@pytest.mark.parametrize("target", TYPESCRIPT)
def test_no_client_is_imported_while_the_offline_model_answers(target: Target) -> None:
    words = run(target, TYPESCRIPT_IMPORTS, "check"), run(target, TYPESCRIPT_IMPORTS, "chat")
    vendors = {"openai", "@anthropic-ai/sdk", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic"}
    vendors |= {"@ai-sdk/amazon-bedrock", "@aws-sdk/credential-providers", "aws4fetch"}
    assert [vendors & {*modules} for modules in words] == [set(), set()]


USAGE = [["--help"], ["chekc"], []]
WITH_MORE = [
    pytest.param(replace(target, variant=f"{target.name}+valkey+agentcore"), marks=pytest.mark.full)
    for target in TARGETS
]


@pytest.mark.parametrize("words", USAGE, ids=["--help", "a wrong command", "no command"])
@pytest.mark.parametrize("target", [*rows(TARGETS), *WITH_MORE])
def test_the_usage_is_printed_without_a_framework(target: Target, words: list[str]) -> None:
    is_python = "python" in target.name
    modules = {*run(target, IMPORTS if is_python else TYPESCRIPT_IMPORTS, *words)}
    heavy = {"strands", "ai", "boto3", "valkey", "openai", "prompt_toolkit", "rich"}
    assert modules & heavy == set() if is_python else modules == {"own"}


@pytest.mark.parametrize("target", rows(TARGETS))
def test_help_is_no_mistake(target: Target) -> None:
    command = [*target.command(installed(target.variant))[:-1], "--help"]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")


@pytest.mark.full
@pytest.mark.parametrize("target", PYTHON)
def test_certificates_are_loaded_once_in_a_process(target: Target, origin: str) -> None:
    counts = run(target, TURNS, **target.provider(origin))
    assert counts == [counts[0]] * 4


@pytest.mark.parametrize("target", WITH_ADDRESS)
def test_an_address_is_of_http_and_takes_a_key_to_another_host_with_a_warning(
    target: Target,
) -> None:
    (name,) = (name for name in target.provider("") if name.endswith("_BASE_URL"))
    key = name.replace("BASE_URL", "API_KEY")
    safe = ["https://a.example/v1", "http://localhost:1/v1", "http://127.0.0.1:1", "http://[::1]/"]
    plain = ["http://a.example/v1", "HTTP://10.0.0.5:1", "http://localhost.example", "http://[::2]"]
    wrong = ["localhost:11434/v1", "ftp://a.example"]
    found = run(
        target,
        PYTHON_CHECK if "python" in target.name else TYPESCRIPT_CHECK,
        json.dumps([{key: "test", name: address} for address in [*safe, *plain, *wrong]]),
    )
    warned, refused = [[f"SET-{name} warning"]] * len(plain), [[f"SET-{name} error"]] * len(wrong)
    assert found == [[]] * len(safe) + warned + refused
