"""The limits of one Valkey or one bucket: `uv run python -m tests.benchmarks.scale`.

Measures the cost of a turn, for an agent and for Valkey, by the size of the session. Computes the
number of replicas that one Valkey serves, and the cost of a million turns. SCALE.md has a run.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import valkey

from tests.benchmarks.subjects import ours, running, session
from tests.stores.servers import valkey_server

TURNS = 60
PROMPTS = {"short": 100, "long": 2_000, "very long": 20_000}  # characters
NETWORK = 5_000_000_000 / 8  # bytes per second of a medium cloud machine, 5 Gbit/s
# US dollars, on demand in us-east-1 in November 2026: replace them with your prices.
CPU_HOUR = 0.04048
GET, PUT = 0.40, 5.00  # for a million requests


def measure(target: str, chars: int, host: str, port: int) -> tuple[float, float, int]:
    """Return milliseconds of CPU of the agent and of Valkey for a turn, and bytes of a session."""
    client: Any = valkey.Valkey(host, port)
    client.flushall()
    place = {"SECRETS_VALKEY_SESSIONS": f"valkey://{host}:{port}"}
    with running(ours(target, "+valkey", **place)) as server:
        name = session()
        for _ in range(25):  # more than 40 messages: the history has its maximum
            server.turn(name, "x" * chars)
        agent, store = server.cpu(), used(client)
        for _ in range(TURNS):
            server.turn(name, "x" * chars)
        time.sleep(0.1)
        agent, store = server.cpu() - agent, used(client) - store
    size = sum(int(client.memory_usage(key)) for key in client.keys("*"))
    return agent / TURNS, store / TURNS, size


def used(client: Any) -> float:
    """Return the milliseconds of CPU that a Valkey has used."""
    info = client.info("cpu")
    return 1000 * float(info["used_cpu_user"] + info["used_cpu_sys"])


@click.command()
@click.option("--target", default="strands-python", show_default=True)
def main(target: str) -> None:
    """Print the limits of one Valkey, and the cost with one bucket."""
    click.echo(
        "| prompts | session | agent CPU | Valkey CPU | turns/s per agent core |"
        " turns/s of Valkey (limit) | agent cores per Valkey | agents | agents and Valkey |"
        " agents and S3 requests |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder, valkey_server(Path(folder)) as (host, port):
        for name, chars in PROMPTS.items():
            agent, store, size = measure(target, chars, host, port)
            by_cpu, by_network = 1000 / store, NETWORK / (2 * size)
            limit = min(by_cpu, by_network)
            resource = "CPU" if by_cpu < by_network else "network"
            cpu = agent / 3600 * CPU_HOUR * 1000
            both = (agent + store) / 3600 * CPU_HOUR * 1000
            click.echo(
                f"| {name} | {size / 1000:.0f} kB | {agent:.1f} ms | {store:.2f} ms | "
                f"{1000 / agent:.0f} | {limit:.0f} ({resource}) | {limit * agent / 1000:.0f} | "
                f"${cpu:.2f} | ${both:.2f} | ${cpu + GET + PUT:.2f} |"
            )


if __name__ == "__main__":
    main(prog_name="python -m tests.benchmarks.scale")
