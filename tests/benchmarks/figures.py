"""The figures: each compares servers that take turns, so that all feel the same machine."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hooks.variants import TARGETS
from tests.benchmarks.subjects import Running, Subject, bare, ours, running, session
from tests.conformance.provider import Provider
from tests.conformance.steps import Drip
from tests.conformance.targets import TARGETS as WITH_PROVIDER
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
        return [make(target) for target in TARGETS for make in (ours, bare)] + self.others

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


def start(bench: Bench) -> Samples:
    """Seconds from the start of the process until /ping answers."""
    subjects = bench.pairs
    subjects += [ours(target, suffix) for target in TARGETS for suffix in ("+valkey", "+agentcore")]
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(subjects):
        if number:
            samples[subject.name].append(server.started)
    return samples


def turn(bench: Bench) -> Samples:
    """Milliseconds of a first turn on a kept connection: the median of 200."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs):
        times = [server.turn(session()) for _ in range(220)][20:]
        if number:
            samples[subject.name].append(statistics.median(times))
    return samples


def history(bench: Bench) -> Samples:
    """Milliseconds of a turn in a session of 40 messages: the median of 100."""
    samples: Samples = defaultdict(list)
    for subject, server, number in bench.servers(bench.pairs):
        name = session()
        times = [server.turn(name) for _ in range(120)][20:]
        if number:
            samples[subject.name].append(statistics.median(times))
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


def memory(bench: Bench) -> Samples:
    """Megabytes of a process that keeps 128 of 20,000 sessions, and after 5,000. Heap: 64 MB."""
    samples: Samples = defaultdict(list)
    for subject in [*map(ours, TARGETS), *bench.others]:  # the floors keep all sessions
        bench.progress(subject.name)
        with running(subject, NODE_OPTIONS="--max-old-space-size=64") as server:
            for number in range(1, 20_001):
                server.turn(session())
                if number == 5000:
                    samples[f"{subject.name} at 5,000"].append(server.megabytes())
            samples[subject.name].append(server.megabytes())
    return samples


def ping(bench: Bench) -> Samples:
    """Milliseconds of /ping, the 99th percentile, while 100 replies stream slowly."""
    samples: Samples = defaultdict(list)
    provider = Provider()
    provider.script("Slowly.", [Drip(50, 100)], endless=True)
    try:
        for number in bench.numbers():
            for target in WITH_PROVIDER:
                settings = {"MAX_TURNS": "128"} | target.provider(provider.origin)
                with running(ours(target.name, **settings)) as server:
                    streams = [server.begin(session(), "Slowly.") for _ in range(100)]
                    times = sorted(server.ping() for _ in range(200))
                    for stream in streams:
                        stream.close()
                    if number:
                        samples[target.name].append(times[-3])
    finally:
        provider.close()
    return samples


def cpu(bench: Bench) -> Samples:
    """Milliseconds of CPU for a turn through OpenAI's SDK, with a provider on this machine."""
    samples: Samples = defaultdict(list)
    provider = Provider()
    try:
        for number in bench.numbers():
            for target in WITH_PROVIDER:
                subject = ours(target.name, **target.provider(provider.origin))
                with running(subject) as server:
                    for _ in range(20):
                        echo(server)
                    before = server.cpu()
                    for _ in range(100):
                        echo(server)
                    if number:
                        samples[subject.name].append((server.cpu() - before) / 100)
    finally:
        provider.close()
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
