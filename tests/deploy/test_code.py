"""The zip file of the code, made by deploy/up, and started as AgentCore does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.deploy.account import opened
from tests.deploy.cloudformation import Stack
from tests.deploy.test_agentcore import SHELL
from tests.installed import NODE, NPM, clean_environment, rendered, uv

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
HERE = {"aarch64-manylinux2014": "x86_64-manylinux2014", "--cpu=arm64": "--cpu=x64"}


@pytest.mark.parametrize("target", TARGETS)
def test_the_code_runs_without_an_image(target: str, tmp_path: Path) -> None:
    store = {"session_store": "valkey"} if target.startswith("vercel") else {}
    project = shutil.copytree(rendered(target, deploy="agentcore", **store), tmp_path / "project")
    lock = [*uv(), "lock", "-q"] if "python" in target else [*NPM, "install", "--package-lock-only"]
    subprocess.run(lock, cwd=project, env=clean_environment(), check=True)
    script = (project / "deploy" / "up").read_text()
    for there, here in HERE.items():
        script = script.replace(there, here)
    version = ".".join(map(str, sys.version_info[:2]))
    script = script.replace("--python-version 3.13", f"--python-version {version}")
    (project / "deploy" / "up").write_text(script)
    names = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *names, *words], cwd=project, check=True)
    with opened(tmp_path) as account:
        for name, words in {"npm": NPM, "uv": uv()}.items():
            (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        path = os.pathsep.join([str(tmp_path / "bin"), str(NODE.parent), os.environ["PATH"]])
        given = {**clean_environment(), **SHELL, "PATH": path, "TMPDIR": str(tmp_path)}
        ran = account.run(project, "deploy/up", **given)
    assert ran.code == 0, ran
    archive = tmp_path / "uploaded.zip"
    code = tmp_path / "code"
    subprocess.run(["unzip", "-q", archive, "-d", code], check=True)
    stack = Stack(project, CodeBucket="code", CodeKey="my-agent/1.zip")
    artifact = stack.properties("Runtime")["AgentRuntimeArtifact"]["CodeConfiguration"]
    (file,) = artifact["EntryPoint"]
    program = [str(NODE)] if file.endswith(".js") else [sys.executable, "-S"]
    run = Target(target, target, lambda _: [*program, file], lambda _: {}, start=subprocess.Popen)
    server = Server(run, code, None, {"HOST": "127.0.0.1", "AWS_REGION": "us-east-1"})
    try:
        assert server.post({"prompt": "Hello."}).status == 200
    finally:
        server.stop()
