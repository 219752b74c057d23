"""The files for Kubernetes: valid, safe, and with what the agent needs."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conformance.chat import Chat
from tests.conformance.conftest import gate, provider  # noqa: F401 (fixtures)
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Hold
from tests.conformance.targets import TARGETS
from tests.installed import rendered
from tests.stores.agents import Home
from tests.stores.servers import wait_for
from tests.stores.stores import Backing

VERSIONS = ("1.30", "1.37")
STORES = ["valkey", "s3", "custom"]
POD_IDENTITY = ("169.254.170.23/32", "fd00:ec2::23/128")
LANGUAGES = ["strands-python", "vercel-typescript"]


def documents(target: str, store: str, **answers: str) -> dict[str, Any]:
    project = rendered(target, session_store=store, deploy="kubernetes", **answers)
    text = (project / "deploy" / "kubernetes.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def home_of(target: str, folder: Path, stack: ExitStack) -> Home:
    """The home of agents for Kubernetes that share a Valkey."""
    base = next(it for it in TARGETS if it.name == target)
    answers = (("model", "openai-compatible"), ("deploy", "kubernetes"))
    backing = Backing(folder / "backing", stack)
    return Home(replace(base, variant=target, answers=answers), backing, folder, "valkey")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("target", LANGUAGES)
def test_kubernetes_knows_each_field(target: str, store: str) -> None:
    found = documents(target, store, long_term_memory="agentcore" if store == "s3" else "none")
    names = ["ServiceAccount", "Deployment", "Service", "PodDisruptionBudget"]
    assert [*found] == [*names, "HorizontalPodAutoscaler", "NetworkPolicy"]
    for document in found.values():
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        assert document["metadata"]["name"] == "my-agent"
    labels = {"app.kubernetes.io/name": "my-agent"}
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert found[kind]["spec"]["selector"] == {"matchLabels": labels}
    assert found["Service"]["spec"]["selector"] == labels
    assert found["NetworkPolicy"]["spec"]["podSelector"] == {"matchLabels": labels}
    assert found["Deployment"]["spec"]["template"]["metadata"]["labels"] == labels
    anywhere, *aws = found["NetworkPolicy"]["spec"]["egress"]
    assert {it["port"] for it in anywhere["ports"]} == {53, 443} | (
        {6379} if store == "valkey" else set()
    )
    blocks = [{"ipBlock": {"cidr": cidr}} for cidr in POD_IDENTITY]
    calls_aws = store == "s3" or target.startswith("strands-")
    assert aws == ([{"to": blocks, "ports": [{"port": 80}]}] if calls_aws else [])


def test_a_pod_may_nothing_that_it_does_not_need() -> None:
    found = documents("vercel-python", "valkey")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert agent["resources"]["limits"]["memory"]
    assert {
        agent[f"{it}Probe"]["httpGet"]["path"] for it in ("readiness", "liveness", "startup")
    } == {"/ping"}
    (setting,) = [it["value"] for it in agent["env"] if it["name"] == "SHUTDOWN_GRACE_SECONDS"]
    assert int(setting) >= 120, "a rollout does not cut a turn of two minutes"
    # The autoscaler alone sets their number: each apply would reset a number of the Deployment.
    assert found["HorizontalPodAutoscaler"]["spec"]["minReplicas"] == 2
    assert "replicas" not in found["Deployment"]["spec"]
    text = json.dumps(found)
    assert not re.search("sk-|AKIA|valkeys?://", text)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("target", LANGUAGES)
def test_an_autoscaler_sees_the_turns(
    target: str,
    provider: Provider,  # noqa: F811
    gate: threading.Event,  # noqa: F811
    tmp_path: Path,
    stack: ExitStack,
) -> None:
    home = home_of(target, tmp_path, stack)
    given = {**home.store.environment(home.store.address), "API_TOKEN": "sesame"}
    server = Server(home.target, home.folder, provider.origin, given)
    try:
        assert server.get("/metrics").body.endswith(b"agent_turns 0\n")
        chat = Chat(server, provider)
        waiting = chat.start(
            "Wait.", [Hold(gate), "Done."], headers={"Authorization": "Bearer sesame"}
        )
        wait_for("a turn", lambda: server.get("/metrics").body.endswith(b"agent_turns 1\n"))
        gate.set()
        assert waiting.reply().status == 200
        wait_for("its end", lambda: server.get("/metrics").body.endswith(b"agent_turns 0\n"))
    finally:
        server.stop()
