"""A rollout on Kubernetes under load: the kubelet's sequence ends the pods, and no turn is lost."""

import random
import threading
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.client import KEY, SESSION
from tests.conformance.conftest import provider  # noqa: F401 (a fixture)
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Drip
from tests.deploy.test_kubernetes import LANGUAGES, documents, home_of, stack  # noqa: F401 (a fixture)
from tests.stores.proxy import Proxy
from tests.stores.servers import Address, wait_for

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(600)]
CLIENTS = 10
STREAMS = (1, 60)  # the shortest and the longest, in seconds
LAG = 2  # seconds until a node sends new connections to other pods


class Service(Proxy):
    """A Service: each connection goes to one of the ready pods, and stays there."""

    def __init__(self) -> None:
        self.pods: list[Address] = []
        super().__init__(("", 0))

    @property
    def behind(self) -> Address:
        return random.choice(self.pods)

    @behind.setter
    def behind(self, _: Address) -> None:
        pass


@dataclass
class Client:
    """A client with one session that keeps its connections and repeats a refused turn."""

    url: str
    provider: Provider
    stop: threading.Event
    session: str = field(default_factory=lambda: f"session-{uuid.uuid4()}")
    prompts: list[str] = field(default_factory=list)  # of the turns that were answered
    refused: list[int] = field(default_factory=list)  # how often each of them was refused
    problem: str = ""

    def run(self) -> None:
        try:
            with httpx.Client(timeout=90) as http:
                while not self.stop.is_set():
                    self.take_turn(http)
        except Exception as error:  # the test reports it
            self.problem = repr(error)

    def take_turn(self, http: httpx.Client) -> None:
        prompt = f"Turn {len(self.prompts) + 1} of {self.session}"
        seconds = random.uniform(*STREAMS)
        self.provider.script(prompt, [Drip(round(seconds * 4), 250), "."])
        headers = {SESSION: self.session, KEY: prompt.replace(" ", "-")}
        for refused in range(10):
            response: httpx.Response | None = None
            try:
                body = {"prompt": prompt}
                with http.stream("POST", self.url, headers=headers, json=body) as response:
                    lines = [*response.iter_lines()]
            except httpx.TransportError:  # the pod closed a connection that this client has kept
                assert response is None, f"the stream was cut: {prompt}"
                continue
            if response.status_code == 503:
                time.sleep(int(response.headers["Retry-After"]))
                continue
            assert "event: done" in lines, (prompt, response.status_code, lines[-5:])
            self.prompts.append(prompt)
            self.refused.append(refused)
            return
        raise AssertionError(f"refused again and again: {prompt}")


@dataclass
class Pod:
    """A server that ends as the kubelet ends a pod."""

    server: Server
    service: Service
    manifest: dict[str, Any]
    ended: threading.Thread | None = None
    code: int | None = None

    def start(self) -> None:
        wait_for("a ready pod", lambda: self.server.get("/ping").status == 200)
        self.service.pods = [*self.service.pods, self.server.address]

    def terminate(self) -> None:
        """Begin the end of the pod."""
        self.ended = threading.Thread(target=self._terminate, daemon=True)
        self.ended.start()

    def _terminate(self) -> None:
        begin = time.monotonic()
        (agent,) = self.manifest["containers"]
        hook = agent["lifecycle"]["preStop"]["sleep"]["seconds"]
        time.sleep(LAG)
        self.service.pods = [it for it in self.service.pods if it != self.server.address]
        time.sleep(hook - LAG)
        self.server.signal()
        self.code = self.server.exit_code(
            self.manifest["terminationGracePeriodSeconds"] - (time.monotonic() - begin)
        )


@pytest.mark.parametrize("target", LANGUAGES)
def test_a_rollout_loses_no_turn(
    target: str,
    provider: Provider,  # noqa: F811
    tmp_path: Path,
    stack: ExitStack,  # noqa: F811
) -> None:
    home = home_of(target, tmp_path, stack)
    manifest = documents(target, "valkey")["Deployment"]["spec"]["template"]["spec"]
    (agent,) = manifest["containers"]
    given = {it["name"]: it["value"] for it in agent["env"]}
    variables = {
        "SHUTDOWN_GRACE_SECONDS": given["SHUTDOWN_GRACE_SECONDS"],
        **home.store.environment(home.store.address),
    }
    service = Service()
    stack.callback(service.close)

    def pod() -> Pod:
        server = Server(home.target, home.folder, provider.origin, variables)
        stack.callback(server.stop)
        pod = Pod(server, service, manifest)
        pod.start()
        return pod

    stop = threading.Event()
    old = [pod(), pod()]
    clients = [Client(f"{service.url}/invocations", provider, stop) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    for one in old:
        pod()  # the rollout ends a pod when a new one is ready
        one.terminate()
    for one in old:
        assert one.ended
        one.ended.join(300)
        assert one.code == 0, one.server.log
    stop.set()
    for thread in threads:
        thread.join(120)
    assert [client.problem for client in clients] == [""] * CLIENTS
    for client in clients:
        turns = len(client.prompts)
        assert turns > 0
        assert home.store.turns(client.session) == turns
        saved = str(home.store.snapshot(client.session))
        for prompt in client.prompts:
            assert len(provider.calls_for(prompt)) == 1, prompt
            assert saved.count(prompt) >= 1
    refusals = [number for client in clients for number in client.refused]
    # A refusal closes its connection, so the next attempt reaches another pod.
    assert max(refusals) <= 1, refusals
