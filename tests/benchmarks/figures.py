"""The figures: each compares servers that take turns, so that all feel the same machine."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hooks.variants import TARGETS
from tests.benchmarks.subjects import WITH_OPENAI, Running, Subject, bare, ours, running, session
from tests.conformance.provider import Provider
from tests.conformance.steps import Drip
from tests.conformance.targets import TARGETS as WITH_PROVIDER
from tests.conformance.targets import chat_completions
from tests.stores.servers import valkey_server

# By the name of a subject what was measured in each run.
Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Bench:
    """How often to measure, what else to measure, and whom to tell how far it is."""

    runs: int
    others: list[Subject]
    progress: Callable[[str], None]

    @property
    def pairs(self) -> list[Subject]:
        """Each target and its floor, then the servers of others."""
        return [make(target) for target in TARGETS for make in (ours, bare)] + self.plain_others

    @property
    def plain_others(self) -> list[Subject]:
        """The servers of others that need no provider."""
        return [other for other in self.others if not other.name.endswith(WITH_OPENAI)]

    def numbers(self) -> Iterator[int]:
        """The numbers of the runs; 0 is a warm-up."""
        for number in range(self.runs + 1):
            self.progress(f"run {number} of {self.runs}")
            yield number

    def servers(
        self, subjects: Iterable[Subject], **settings: int | str
    ) -> Iterator[tuple[Subject, Running, int]]:
        """Start each subject once in each run."""
        for number in self.numbers():
            for subject in subjects:
                with running(subject, **settings) as server:
                    yield subject, server, number


def add(samples: Samples, name: str, times: list[float]) -> None:
    """Add the median and the 99th percentile of the times of a run."""
    samples[name].append(statistics.median(times))
    samples[f"{name}, p99"].append(sorted(times)[len(times) * 99 // 100 - 1])


def start(bench: Bench) -> Samples:
    """Seconds from the start of the process until /ping answers; and with OpenAI's client."""
    subjects = bench.pairs
    subjects += [ours(target, suffix) for target in TARGETS for suffix in ("+valkey", "+agentcore")]
    client = {"MODEL": "gpt-5", "OPENAI_API_KEY": "none"}
    subjects += [replace(ours(it, **client), name=f"{it}{WITH_OPENAI}") for it in TARGETS]
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(subjects):
        if number:
            samples[subject.name].append(server.started)
    return samples


def reply(bench: Bench) -> Samples:
    """Seconds from the start of the process until the first reply, through OpenAI's SDK."""
    samples: Samples = defaultdict(list)
    with closing(Provider()) as provider:
        subjects = [ours(it.name, **it.provider(provider.origin)) for it in WITH_PROVIDER]
        client = chat_completions(provider.origin)
        with_client = [other for other in bench.others if other.name.endswith(WITH_OPENAI)]
        subjects += [replace(other, settings=client) for other in with_client]
        for subject, server, number in bench.servers(subjects):
            echo(server)
            if number:
                samples[subject.name].append(time.perf_counter() - server.began)
    return samples


def turn(bench: Bench) -> Samples:
    """Milliseconds of a first turn on a kept connection: of 200."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs):
        times = [server.turn(session()) for _ in range(220)][20:]
        if number:
            add(samples, subject.name, times)
    return samples


def history(bench: Bench) -> Samples:
    """Milliseconds of a turn in a session of 40 messages: of 100."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs):
        name = session()
        times = [server.turn(name) for _ in range(120)][20:]
        if number:
            add(samples, subject.name, times)
    return samples


def long(bench: Bench) -> Samples:
    """Milliseconds of a turn with all history, from 450 to 500 messages: the median."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs, HISTORY_MESSAGES=100_000):
        name = session()
        times = [server.turn(name) for _ in range(250)][225:]
        if number:
            samples[subject.name].append(statistics.median(times))
    return samples


def sessions(bench: Bench) -> Samples:
    """Milliseconds of a turn when 1,000 sessions take turns, two each: the mean."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs, SESSION_CAPACITY=2000):
        names = [session() for _ in range(1000)]
        times = [server.turn(name) for _ in range(2) for name in names]
        if number:
            samples[subject.name].append(statistics.mean(times))
    return samples


def clients(bench: Bench) -> Samples:
    """Milliseconds of a first turn while 64 clients take turns at once: of 1,920."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs, MAX_TURNS=128, SESSION_CAPACITY=4000):
        with ThreadPoolExecutor(64) as pool:
            times = [each for part in pool.map(thirty_turns, [server] * 64) for each in part]
        if number:
            add(samples, subject.name, times)
    return samples


def thirty_turns(server: Running) -> list[float]:
    """The milliseconds of the turns of one client."""
    with closing(server.connect()) as connection:
        return [server.turn(session(), connection=connection) for _ in range(30)]


def memory(bench: Bench) -> Samples:
    """Megabytes of a process that keeps 128 of 20,000 sessions, and after 5,000."""
    samples: Samples = defaultdict(list)
    for subject in [*map(ours, TARGETS), *bench.plain_others]:  # the floors keep all sessions
        bench.progress(subject.name)
        with running(subject) as server:
            for number in range(1, 20_001):
                server.turn(session())
                if number == 5000:
                    samples[f"{subject.name} at 5,000"].append(server.megabytes())
            samples[subject.name].append(server.megabytes())
    return samples


def ping(bench: Bench) -> Samples:
    """Milliseconds of /ping, the 99th percentile, from the first moment of 100 slow streams."""
    samples: Samples = defaultdict(list)
    with closing(Provider()) as provider:
        provider.script("Slowly.", [Drip(50, 100)], endless=True)
        for number in bench.numbers():
            for target in WITH_PROVIDER:
                settings = {"MAX_TURNS": "128"} | target.provider(provider.origin)
                for kind, is_new in {"kept": False, "new": True}.items():
                    with running(ours(target.name, **settings)) as server:
                        times = ping_beside_streams(server, is_new=is_new)
                    if number:
                        name = f"{target.name}, {kind} connection"
                        samples[name].append(sorted(times)[-3])
    return samples


def ping_beside_streams(server: Running, *, is_new: bool) -> list[float]:
    """The milliseconds of 200 requests of /ping, while 100 clients begin turns at once."""
    with ThreadPoolExecutor(100) as pool:
        begun = [pool.submit(server.begin, session(), "Slowly.") for _ in range(100)]
        times = [server.ping(is_new=is_new) for _ in range(200)]
        for stream in begun:
            stream.result().close()
    return times


def cpu(bench: Bench) -> Samples:
    """Milliseconds of CPU for a turn through OpenAI's SDK, with a provider on this machine."""
    samples: Samples = defaultdict(list)
    with closing(Provider()) as provider:
        subjects = [ours(it.name, **it.provider(provider.origin)) for it in WITH_PROVIDER]
        for subject, server, number in bench.servers(subjects):
            for _ in range(20):
                echo(server)
            before = server.cpu()
            for _ in range(100):
                echo(server)
            if number:
                samples[subject.name].append((server.cpu() - before) / 100)
    return samples


def echo(server: Running) -> None:
    """Take a turn; the provider repeats the prompt."""
    server.turn(session(), "Are you an offline model?")


def store(bench: Bench) -> Samples:
    """Milliseconds that Valkey adds to a turn in a session of 40 messages: medians of 100."""
    samples: Samples = defaultdict(list)
    with TemporaryDirectory() as folder, valkey_server(Path(folder), [], None) as (host, port):
        place = {"SECRETS_VALKEY_SESSIONS": f"valkey://{host}:{port}"}
        for number in bench.numbers():
            for target in TARGETS:
                times = []
                for subject in (ours(target), ours(target, "+valkey", **place)):
                    with running(subject) as server:
                        name = session()
                        each = [server.turn(name) for _ in range(120)][20:]
                        times.append(statistics.median(each))
                if number:
                    samples[target].append(times[1] - times[0])
    return samples
