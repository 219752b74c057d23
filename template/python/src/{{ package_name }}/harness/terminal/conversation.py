"""A conversation: prompts become turns, and commands act on the session."""

import asyncio
import re
import shutil
import time
from uuid import uuid4

import click

from ..contract import Turn, TurnRequest, TurnResult, Usage
from ..late_errors import run_to_end
from ..log import as_agent_error
from ..models.advice import explain
from ..runtime import Runtime
from ..sessions.sessions import text_of
from ..turn import describe_tools
from .screen import HELP, Screen, shorten


class Conversation:
    """A session that a person talks to."""

    def __init__(
        self, runner: asyncio.Runner, runtime: Runtime, screen: Screen, id: str, actor: str | None
    ) -> None:
        self.session_id = id
        self.turns = 0  # completed in this session
        self.failures = 0
        self.is_over = False
        self._actor = actor
        self._runner = runner
        self._runtime = runtime
        self._screen = screen

    def read(self, question: str = "") -> str | None:
        """Return what the person types; meanwhile the tasks of capabilities run."""
        line: str | None = run_to_end(self._runner, self._screen.read(question))
        return line

    def hear(self, line: str) -> None:
        """Run a command, or a turn with this prompt."""
        try:
            self._hear(line, line.strip())
        except Exception as error:  # noqa: BLE001 (the conversation goes on)
            self.failures += 1
            self._screen.end_line()
            failure = as_agent_error(error)
            click.echo(f"{failure} {explain(failure, self._runtime.modules.model)}", nl=False)
        except KeyboardInterrupt:  # the second one in a turn
            self._screen.end_line()
            self.is_over = True

    def _hear(self, line: str, word: str) -> None:
        match word:
            case "/quit" | "exit" | "quit" if not self._screen.is_once:
                self.is_over = True
            case "/help":
                self._screen.print(HELP)
            case "/new":
                previous = self.session_id
                self.session_id = str(uuid4())
                self.turns = 0
                click.echo(f"Started session {self.session_id} (previous: {previous}).")
            case "/session":
                click.echo(f"This is session {self.session_id}.")
            case "/retry":
                request = TurnRequest(self.session_id, "", actor=self._actor, replaces=0)
                self._take(request)
            case "/undo":
                number = run_to_end(self._runner, self._take_back())
                click.echo(f"Turn {number} was deleted.")
            case "/history":
                self._print(run_to_end(self._runner, self._read_messages()))
            case "/model":
                model = self._runtime.settings.model
                self._print([line for line in self._runtime.describe("") if model in line])
            case "/tools":
                tools = describe_tools(self._runtime.tools())
                self._print([f"{name}: {text.strip()}".split("\n")[0] for name, text in tools])
            case _ if re.match(r"/\w*(\s|$)", word):  # a path has another slash
                self.failures += 1
                click.echo("No such command: /help lists them.")
            case _ if word or self._screen.is_once:
                self._take(TurnRequest(self.session_id, line, actor=self._actor))

    def _take(self, request: TurnRequest) -> None:
        """Run a turn, and the turns that go on with answers of the person."""
        turns = list[Turn]()
        seconds = 0.0  # without those in which the person reads
        next_request: TurnRequest | None = request
        while next_request:
            turns.append(Turn(next_request, self._screen.show))
            began = time.monotonic()
            result = run_to_end(self._runner, self._screen.follow(self._answer(turns[-1])))
            seconds += time.monotonic() - began
            if result is None:
                break
            next_request = self._runtime.ask_approval(result, next_request, self.read)
        if result:
            self.turns += 1
            self._screen.end_reply(describe_cost(turns, seconds))
        elif self._screen.is_piped:
            self.failures += self._screen.is_once
            self.is_over = True
        else:
            self._screen.end_line()
            click.echo("Interrupted: nothing of this turn was kept.")

    async def _answer(self, turn: Turn) -> TurnResult:
        return await self._runtime.start(turn)

    async def _take_back(self) -> int:
        async with self._runtime.sessions.open(self.session_id, self._actor) as session:
            return int(await session.take_back())

    async def _read_messages(self) -> list[str]:
        session = await self._runtime.sessions.read(self.session_id, self._actor)
        texts = [(message["role"], text_of(message)) for message in session.data["messages"]]
        width = max(shutil.get_terminal_size().columns, 10)
        return [shorten(f"{role}: {text}", width) for role, text in texts if text]

    def _print(self, lines: list[str]) -> None:
        self._screen.print("\n".join(lines or ["None."]))


def describe_cost(turns: list[Turn], seconds: float) -> str:
    """Return the tokens and the time of the turns of a reply, and their details."""
    usage = sum((turn.usage for turn in turns), Usage())
    facts = [f"{seconds:.1f} s", *(turn.detail for turn in turns if turn.detail)]
    if usage.input_tokens or usage.output_tokens:
        of_cache = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        facts.insert(0, f"{usage.input_tokens:,} tokens in{of_cache}, {usage.output_tokens:,} out")
    return ", ".join(facts)
