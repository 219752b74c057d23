"""The table of targets. A new render adds a row; nothing else in this suite knows a language."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.installed import NODE, installed
from tests.stores.forks import start
from tests.stores.stores import KINDS


@dataclass(frozen=True)
class Target:
    name: str
    variant: str  # what tests.installed.installed() renders and installs
    command: Callable[[Path], list[str]]  # starts the server of an installed project
    provider: Callable[[str], dict[str, str]]  # the variables that point it at a provider's origin
    answers: tuple[tuple[str, str], ...] = ()  # further ones, for installed()
    store: str = ""  # where sessions live, one of KINDS; "": in the process
    start: Callable[..., Any] = start  # or subprocess.Popen
    agent: Path | None = None  # an agent file in place of the rendered one

    def project(self) -> Path:
        """Where its render is, so that it can be run."""
        return installed(self.variant, self.agent, **dict(self.answers))

    @property
    def model(self) -> str:
        """The id of its model, as replies name it."""
        return self.provider("")["MODEL"]

    @property
    def is_node(self) -> bool:
        """Whether the server is Node's own, with its parser."""
        return "typescript" in self.name


def python_serve(project: Path) -> list[str]:
    return [str(project / ".venv" / "bin" / "my-agent"), "serve"]


def typescript_serve(project: Path) -> list[str]:
    return [str(NODE), str(project / "src" / "main.ts"), "serve"]


def gateway_serve(project: Path) -> list[str]:
    """The gateway's address is no setting of the AI SDK for Python: it stands in its module."""
    moved = "import os, ai.providers.ai_gateway.provider as p; p._BASE_URL = os.environ['GATEWAY']"
    return [
        *(str(project / ".venv" / "bin" / "python"), "-c"),
        *(f"{moved}; from my_agent.main import cli; cli()", "serve"),
    ]


def typescript_gateway_serve(project: Path) -> list[str]:
    """The gateway's address is fixed, as it is in Python: here it is what fetch looks for."""
    fixed = "https://ai-gateway.vercel.sh/v4/ai"
    moved = f"const f=fetch;globalThis.fetch=(u,o)=>f(u.replace('{fixed}',process.env.GATEWAY),o)"
    command = typescript_serve(project)
    return [command[0], "--import", f"data:text/javascript,{moved}", *command[1:]]


def chat_completions(origin: str) -> dict[str, str]:
    return {"MODEL": "test-model", "OPENAI_BASE_URL": f"{origin}/v1", "OPENAI_API_KEY": "test"}


def messages(origin: str) -> dict[str, str]:
    return {"MODEL": "test-model", "ANTHROPIC_BASE_URL": origin, "ANTHROPIC_API_KEY": "test"}


def converse(origin: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    place = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": origin}
    return {"MODEL": "test-model", **keys, **place}


def gateway(origin: str) -> dict[str, str]:
    return {"MODEL": "test/model", "GATEWAY": f"{origin}/v4/ai", "AI_GATEWAY_API_KEY": "test"}


AGENTS = Path(__file__).with_name("agents")


def with_own_agent(target: Target, *, approval: bool = False) -> Target:
    """The target with the agent of this suite: tools that know their turn, and one that asks."""
    base = target.variant.partition("+")[0]
    (agent,) = AGENTS.glob(f"{base.replace('-', '_')}.*")
    if not approval:
        return replace(target, agent=agent)
    model = ("model", "openai-compatible")
    return replace(target, agent=agent, variant=f"{base}+approval", answers=(model,))


def compacting(target: Target, *extras: str) -> Target:
    """The target, rendered to summarize what its sessions no longer hold."""
    base = target.variant.partition("+")[0]
    others = (("extras", f"[{','.join(('compaction', *extras))}]"),) if extras else ()
    answers = (("model", "openai-compatible"), *others)
    return replace(target, variant=f"{base}+compaction", answers=answers)


TARGETS = [
    Target(
        "strands-python",
        "strands-python+openai-compatible",
        python_serve,
        chat_completions,
    ),
    Target(
        "strands-typescript",
        "strands-typescript+openai-compatible",
        typescript_serve,
        chat_completions,
    ),
    Target(
        "vercel-python",
        "vercel-python+openai-compatible",
        python_serve,
        chat_completions,
    ),
    Target(
        "vercel-typescript",
        "vercel-typescript+openai-compatible",
        typescript_serve,
        chat_completions,
    ),
]

# Where sessions can live besides the process.
STORED = [
    replace(target, name=f"{target.name}-{store}", store=store)
    for target in TARGETS
    for store in KINDS
]
# Which of them a usual run has, by what a test is about. Of code that the targets of a language
# share one is enough; a store, too, is tried once for each language. The full run has all.
SHARED = {"strands-python", "vercel-typescript"}
USUAL_STORED = {"strands-python-valkey", "vercel-typescript-s3"}
USUAL = {
    "the server": SHARED,
    "sessions": SHARED | USUAL_STORED,
    "turns": {target.name for target in TARGETS},
    "all": {target.name for target in TARGETS} | USUAL_STORED,
}

# Every other vendor's client, for the scenarios that depend on one.
VENDOR_TARGETS = [
    Target("strands-python-anthropic", "strands-python+anthropic", python_serve, messages),
    Target("strands-python-bedrock", "strands-python", python_serve, converse),
    Target(
        "strands-typescript-anthropic", "strands-typescript+anthropic", typescript_serve, messages
    ),
    Target("strands-typescript-bedrock", "strands-typescript", typescript_serve, converse),
    Target("vercel-python-anthropic", "vercel-python+anthropic", python_serve, messages),
    Target("vercel-python-bedrock", "vercel-python+bedrock", python_serve, converse),
    Target(
        "vercel-python-gateway",
        "vercel-python+gateway",
        gateway_serve,
        gateway,
        start=subprocess.Popen,
    ),
    Target(
        "vercel-typescript-anthropic", "vercel-typescript+anthropic", typescript_serve, messages
    ),
    Target("vercel-typescript-bedrock", "vercel-typescript+bedrock", typescript_serve, converse),
    Target(
        "vercel-typescript-gateway", "vercel-typescript+gateway", typescript_gateway_serve, gateway
    ),
]
MODELS = {target.model for target in [*TARGETS, *VENDOR_TARGETS]}
