"""The zip file of the code, made as docs/agentcore.md says, and started as AgentCore does."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hooks.variants import TARGETS
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.deploy.cloudformation import Stack
from tests.installed import NODE, NPM, clean_environment, rendered, uv

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
HERE = {"aarch64-manylinux2014": "x86_64-manylinux2014", "--cpu=arm64": "--cpu=x64"}


@pytest.mark.parametrize("target", TARGETS)
def test_the_code_runs_without_an_image(target: str, tmp_path: Path) -> None:
    store = {"session_store": "valkey"} if target.startswith("vercel") else {}
    project = shutil.copytree(rendered(target, deploy="agentcore", **store), tmp_path / "project")
    lock = [*uv(), "lock", "-q"] if "python" in target else [*NPM, "install", "--package-lock-only"]
    subprocess.run(lock, cwd=project, env=clean_environment(), check=True)
    text = (project / "docs" / "agentcore.md").read_text().partition("\n## Without Docker\n")[2]
    lines = [it for it in text.partition("\n## ")[0].splitlines() if it.startswith("    ")]
    script = textwrap.dedent("\n".join(lines))
    for there, here in HERE.items():
        script = script.replace(there, here)
    version = ".".join(map(str, sys.version_info[:2]))
    script = script.replace("--python-version 3.13", f"--python-version {version}")
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, words in {"npm": NPM, "uv": uv(), "aws": ["echo", "aws"]}.items():
        (bin / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (bin / name).chmod(0o755)
    path = os.pathsep.join([str(bin), str(NODE.parent), os.environ["PATH"]])
    environment = {**clean_environment(), "PATH": path, "BUCKET": "code", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=project, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (_, copied) = [line for line in ran.stdout.splitlines() if line.startswith("aws s3")]
    archive = re.findall(r"aws s3 cp (\S+) s3://code/my-agent/1.zip", copied)[0]
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
