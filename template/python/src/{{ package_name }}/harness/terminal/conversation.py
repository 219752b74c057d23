"""A conversation of `chat`: runs prompts as turns, and commands."""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import click

from ..contract import Chunk, File, Turn, TurnRequest, TurnResult, Usage
from ..files import check_files, read_path
from ..late_errors import run_to_end
from ..log import as_agent_error
from ..models.advice import explain
from ..runtime import Runtime
from ..sessions.sessions import text_of
from ..turn import describe_tools
from .screen import HELP, Screen, shorten


class Conversation:
    """A user's conversation with the agent."""

    def __init__(
        self, runner: asyncio.Runner, runtime: Runtime, screen: Screen, id: str, actor: str | None
    ) -> None:
        self.session_id = id
        self.turns = 0  # completed turns of this session
        self.failures = 0
        self.is_over = False
        self.files: list[File] = []  # for the next prompt
        self._actor = actor
        self._runner = runner
        self._runtime = runtime
        self._screen = screen

    def read(self, question: str = "") -> str | None:
        """Return the user's next line; capabilities' tasks run meanwhile."""
        line: str | None = run_to_end(self._runner, self._screen.read(question))
        return line

    def handle(self, line: str) -> None:
        """Run a command, or a turn with this prompt; print errors."""
        self._attempt(partial(self._handle, line, line.strip()))

    def follow(self) -> None:
        """Show the session's running turn, until it ends or the user presses Ctrl-C."""
        self._attempt(self._follow)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do some work; print errors."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 (the conversation goes on)
            self.failures += 1
            self._screen.end_line()
            failure = as_agent_error(error)
            click.echo(f"{failure} {explain(failure, self._runtime.modules.model)}", nl=False)
        except KeyboardInterrupt:  # a second Ctrl-C in a turn
            self._screen.end_line()
            self.is_over = True

    def _handle(self, line: str, word: str) -> None:
        match word:
            case "/quit" | "exit" | "quit" if not self._screen.is_single_question:
                self.is_over = True
            case "/help":
                self._screen.print(HELP)
            case "/new":
                previous = self.session_id
                self.session_id = str(uuid4())
                self.turns = 0
                self.files = []
                click.echo(f"Started session {self.session_id} (previous: {previous}).")
            case "/session":
                click.echo(f"This is session {self.session_id}.")
            case "/retry":
                request = TurnRequest(self.session_id, "", actor=self._actor, replaces=0)
                self._run_turns(request)
            case "/undo":
                number = run_to_end(self._runner, self._delete_last_turn())
                click.echo(f"Deleted turn {number}.")
            case "/history":
                self._print(run_to_end(self._runner, self._read_messages()))
            case "/model":
                lines = self._runtime.describe("")
                self._print([line for line in lines if line.startswith("Model:")])
            case "/tools":
                tools = describe_tools(self._runtime.tools())
                self._print([f"{name}: {text.strip()}".split("\n")[0] for name, text in tools])
            case "/attach":
                self.files = []
                click.echo("No files are attached to the next prompt.")
            case _ if word.startswith("/attach "):
                # Terminals quote the path of a file that is dropped on them.
                self._attach(
                    re.sub(r"^(['\"])(.*)\1$", r"\2", word.removeprefix("/attach ").strip())
                )
            case _ if re.match(r"/\w*(\s|$)", word):  # not a path
                self.failures += 1
                click.echo("Unknown command. Type /help for a list.")
            case _ if word or self._screen.is_single_question:
                files = self.files
                request = TurnRequest(self.session_id, line, actor=self._actor, files=files)
                self._run_turns(request)

    def _follow(self) -> None:
        chunks = run_to_end(self._runner, self._runtime.follow(self.session_id, self._actor))
        if chunks is None:
            return
        click.echo("A turn of this session is running. To leave it running, press Ctrl-C.")
        if run_to_end(self._runner, self._screen.follow(self._show(chunks))):
            self.turns += 1
            self._screen.end_reply("")
        else:
            self._screen.end_line()
            click.echo("The turn continues.")

    async def _show(self, chunks: AsyncIterator[Chunk]) -> bool:
        async for chunk in chunks:
            await self._screen.show(chunk)
        return True

    def _attach(self, path: str) -> None:
        file = read_path(Path(path), self._runtime.settings)
        files = [*self.files, file]
        check_files(files, self._runtime.file_types, self._runtime.settings)
        self.files = files
        click.echo(f"Attached {file.label} ({len(file.data):,} bytes) to the next prompt.")

    def _run_turns(self, request: TurnRequest) -> None:
        """Run a turn and its continuations after approvals."""
        turns = list[Turn]()
        seconds = 0.0  # without the user's time
        next_request: TurnRequest | None = request
        while next_request:
            turns.append(Turn(next_request, self._screen.show))
            began = time.monotonic()
            result = run_to_end(self._runner, self._screen.follow(self._run(turns[-1])))
            seconds += time.monotonic() - began
            if result is None:
                break
            next_request = self._runtime.ask_approval(result, next_request, self.read)
        if result:
            if request.files:
                self.files = []
            self.turns += 1
            self._screen.end_reply(describe_cost(turns, seconds, self._runtime.settings.model))
        elif self._screen.is_piped:
            self.failures += self._screen.is_single_question
            self.is_over = True
        else:
            self._screen.end_line()
            click.echo("Interrupted: this turn was not saved.")

    async def _run(self, turn: Turn) -> TurnResult:
        return await self._runtime.start(turn)

    async def _delete_last_turn(self) -> int:
        async with self._runtime.sessions.open(self.session_id, self._actor) as session:
            return int(await session.take_back())

    async def _read_messages(self) -> list[str]:
        session = await self._runtime.sessions.read(self.session_id, self._actor)
        texts = [(message["role"], text_of(message)) for message in session.data["messages"]]
        width = max(shutil.get_terminal_size().columns, 10)
        return [shorten(f"{role}: {text}", width) for role, text in texts if text]

    def _print(self, lines: list[str]) -> None:
        self._screen.print("\n".join(lines or ["None."]))


def describe_cost(turns: list[Turn], seconds: float, model: str) -> str:
    """Return tokens and time of a reply's turns, and the models that replaced `model`."""
    usage = sum((turn.usage for turn in turns), Usage())
    others = dict.fromkeys(turn.model for turn in turns if turn.model not in {"", model})
    facts = [f"{seconds:.1f} s", *(f"answered by {name}" for name in others)]
    if usage.input_tokens or usage.output_tokens:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        facts.insert(0, f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out")
    return ", ".join(facts)
