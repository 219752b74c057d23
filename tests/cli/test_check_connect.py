"""`check --connect` calls each model that the settings name, with the client that turns use."""

import os
import re
import socket
import subprocess
from dataclasses import dataclass, replace

import pytest

from tests.conformance.provider import Provider
from tests.conformance.steps import HANG
from tests.conformance.targets import TARGETS, VENDOR_TARGETS, Target

pytestmark = pytest.mark.slow

EVERY = [*TARGETS, *(pytest.param(target, marks=pytest.mark.full) for target in VENDOR_TARGETS)]
RENDERS = [
    pytest.param(target, variable, variant, id=f"{target.name}-{variable}", marks=marks)
    for target in TARGETS
    for variable, variant, marks in (
        ("MODEL_FALLBACK", "fallback", ()),
        ("COMPACTION_MODEL", "compaction", pytest.mark.full),
        ("EXTRACTION_MODEL", "knowledge-base", pytest.mark.full),
        ("JUDGE_MODEL", "evals", pytest.mark.full),
    )
]
WRONG = "a-wrong-key-that-nobody-may-see"


@dataclass
class Check:
    """A running `check --connect`, which calls several models at once in one test."""

    process: "subprocess.Popen[str]"

    def result(self) -> tuple[int, str]:
        output, errors = self.process.communicate(timeout=100)
        assert errors == ""
        return self.process.returncode, output


def check(target: Target, **variables: str) -> Check:
    project = target.project()
    command = [part for part in target.command(project) if part != "serve"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    process = target.start(
        [*command, "check", "--connect"],
        cwd=project,
        env={"PORT": "0", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Check(process)


def with_key(variables: dict[str, str], key: str) -> dict[str, str]:
    return {name: key if "_KEY" in name else value for name, value in variables.items()}


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_a_wrong_key_and_an_unknown_model_are_errors(target: Target) -> None:
    provider = Provider()
    variables = target.provider(provider.origin)
    model = variables["MODEL"]
    provider.key, provider.models = "test", {model}
    right = check(target, **variables)
    key = check(target, **with_key(variables, WRONG))
    missing = check(target, **{**variables, "MODEL": "no/such-model"})
    assert right.result() == (0, "0 errors, 0 warnings\n")
    code, output = key.result()
    name = next((name for name in variables if name.endswith("API_KEY")), "the AWS credentials")
    assert code == 1
    assert output.startswith(f"environment:0 SET-MODEL Cannot call MODEL={model}: ")
    assert f": check {name} (" in output
    assert WRONG not in output
    assert output.count("\n") == 2
    code, output = missing.result()
    assert code == 1
    assert ": check MODEL and " in output
    assert "does not exist" in output  # what the provider says
    provider.close()


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_the_call_ends_at_the_first_text(target: Target) -> None:
    provider = Provider()
    provider.script("Hello", ["Hello", HANG])
    assert check(target, **target.provider(provider.origin)).result()[0] == 0
    (call,) = provider.calls_for("Hello")
    provider.wait("the end of the call", lambda: call.outcome == "gone")
    provider.close()


@pytest.mark.parametrize("target", EVERY, ids=lambda target: target.name)
def test_a_model_that_is_not_reached_or_hangs_is_an_error(target: Target) -> None:
    provider = Provider()
    provider.script("Hello", [HANG])
    silent = check(target, TURN_TIMEOUT_SECONDS="2", **target.provider(provider.origin))
    # The port stays taken: another test's server could listen there.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        code, output = check(target, **target.provider(origin)).result()
    assert code == 1
    assert re.search(r" and the network( \(.+\))?\.\n", output), output
    code, output = silent.result()
    assert code == 1
    assert ": no answer within 2 s: check " in output
    provider.close()


@pytest.mark.full
@pytest.mark.parametrize(("target", "variable", "variant"), RENDERS)
def test_each_other_model_of_the_settings_is_called(
    target: Target, variable: str, variant: str
) -> None:
    base = target.variant.partition("+")[0]
    answers = (("model", "openai-compatible"),)
    target = replace(target, variant=f"{base}+{variant}", answers=answers)
    provider = Provider()
    variables = target.provider(provider.origin)
    provider.models = {variables["MODEL"]}
    _, output = check(target, **variables, **{variable: "no-such-model"}).result()
    assert f"SET-{variable} Cannot call {variable}=no-such-model: " in output
    assert f": check {variable} and OPENAI_BASE_URL (" in output
    provider.close()
