"""A conversation: prompts become turns, and commands act on the session."""

import asyncio
import re
import shutil
import time
from uuid import uuid4

import click

from ..contract import Turn, check_prompt
from ..late_errors import run_to_end
from ..log import as_agent_error
from ..models.advice import explain
from ..runtime import Runtime
from ..sessions.sessions import LastTurn, text_of
from ..turn import describe_tools, take_turn
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
        turn = Turn(self.session_id, self._actor, None, "", self._screen.show)
        match word:
            case "/quit" | "exit" | "quit" if not self._screen.is_once:
                self.is_over = True
            case "/help":
                self._screen.print(HELP)
            case "/new":
                self.session_id, self.turns = str(uuid4()), 0
                click.echo(f"Started session {self.session_id} (previous: {turn.session_id}).")
            case "/session":
                click.echo(f"This is session {self.session_id}.")
            case "/retry":
                turn.replaces = 0
                self._take(turn)
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
                turn.prompt = check_prompt(line, self._runtime.settings.max_prompt_chars)
                self._take(turn)

    def _take(self, turn: Turn) -> None:
        """Run a turn, and the turns that go on with answers of the person."""
        turns = [turn]
        last, seconds = self._run(turn)
        while last and (answers := self._runtime.ask(last, turns[-1], self._screen.read)):
            turns.append(answers)
            last, more_seconds = self._run(answers)
            seconds += more_seconds
        if last:
            self.turns += 1
            self._screen.end_reply(describe_cost(turns, seconds))
        elif self._screen.is_piped:
            self.failures += self._screen.is_once
            self.is_over = True
        else:
            self._screen.end_line()
            click.echo("Interrupted: nothing of this turn was kept.")

    def _run(self, turn: Turn) -> tuple[LastTurn | None, float]:
        """Return the result of a turn, or None if Ctrl-C cancelled it; and its seconds."""
        start = time.monotonic()
        last = run_to_end(self._runner, self._screen.follow(take_turn(self._runtime, turn)))
        return last, time.monotonic() - start

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
    tokens_in = sum(turn.input_tokens for turn in turns)
    cached = sum(turn.cached_tokens for turn in turns)
    tokens_out = sum(turn.output_tokens for turn in turns)
    facts = [f"{seconds:.1f} s", *(turn.detail for turn in turns if turn.detail)]
    if tokens_in or tokens_out:
        of_cache = f" ({cached:,} cached)" if cached else ""
        facts.insert(0, f"{tokens_in:,} tokens in{of_cache}, {tokens_out:,} out")
    return ", ".join(facts)
