"""The conversation in a terminal, or from a pipe."""

import asyncio
import os
import re
import sys
from typing import Any
from uuid import uuid4

import click

from . import contract
from .capabilities import Settings, make_capabilities
from .contract import Turn, check_prompt
from .late_errors import run_to_end, survive_late_errors
from .log import as_agent_error
from .markdown import BOLD
from .sessions import text_of
from .terminal import Reply, Screen, columns, shorten

HELP = """\
/new      begin a new session
/retry    run the last turn again, and replace it
/undo     delete the last turn
/history  list the messages of the session
/model    print which model answers
/tools    list the tools of the agent
/session  print the id of the session
/quit     leave, as exit, quit and Ctrl-D do
Ctrl-C cancels the running turn, clears a half-typed line, or exits on an empty line."""


@click.command()
@click.argument("question", required=False)
@click.option("--session", default=lambda: str(uuid4()), help="Continue this session.")
@click.option("--actor", help="Speak as this actor.")
def chat(question: str | None, session: str, actor: str | None) -> None:
    """Talk to the agent in this terminal, or from a pipe, one prompt per line.

    With a QUESTION: print the reply, and exit.
    """
    if not re.fullmatch(contract.SESSION_ID, session):
        raise click.BadParameter(contract.ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(contract.ACTOR_ID, actor):
        raise click.BadParameter(contract.ERRORS["invalid_actor"][1])
    is_once, done, failed = question is not None, 0, 0
    settings, findings = Settings.read()
    screen = Screen(settings.project_name, is_once)
    if screen.is_live and not is_once:  # at once: a framework takes seconds to load
        model = "offline model" if settings.model == "offline" else settings.model
        title = f"{settings.project_name}, {model}"
        line = screen.wrap(f"{title}. /help lists the commands; Ctrl-D leaves.")
        click.echo(line.replace(title, screen.style(title, BOLD), 1))
    from .advice import explain
    from .runtime import start_runtime
    from .turn import take_turn

    runtime = start_runtime(settings, findings, make_capabilities(settings))
    if runtime.actor_required and actor is None:
        actor = "local-user"
        click.echo(f"You are {actor}; choose another with `--actor ID`.")
    with asyncio.Runner() as runner:
        survive_late_errors(runner.get_loop())
        runner.run(runtime.open())
        for line in iter(screen.read_prompt, None) if question is None else [question]:
            command = line.strip()
            if command in {"/quit", "exit", "quit"} and not is_once:
                break
            if command == "/help":
                click.echo(screen.wrap(HELP))
            elif command == "/new":
                session, before, done = str(uuid4()), session, 0
                click.echo(f"Started session {session} (previous: {before}).")
            elif command == "/session":
                click.echo(f"This is session {session}.")
            elif re.match(r"/(?!(retry|undo|history|model|tools)$)\w*(\s|$)", command):
                failed += 1  # a path has another slash
                click.echo("No such command: /help lists them.")
            elif command or is_once:
                reply = Reply(screen)
                turns = [Turn(session, actor, None, "", reply.show)]
                try:
                    if command == "/undo":
                        number = run_to_end(runner, _take_back(runtime, turns[0]))
                        click.echo(f"Turn {number} was deleted.")
                        continue
                    if command in {"/history", "/model", "/tools"}:
                        screen.print(run_to_end(runner, _look_up(command, runtime, turns[0])))
                        continue
                    if command == "/retry":
                        turns[0].replaces = 0
                    else:
                        turns[0].prompt = check_prompt(line, settings.max_prompt_chars)
                    last = run_to_end(runner, reply.follow(take_turn(runtime, turns[0])))
                    while last and (answers := runtime.ask(last, turns[-1], screen.read)):
                        turns.append(answers)
                        last = run_to_end(runner, reply.follow(take_turn(runtime, answers)))
                    if last:
                        done += 1
                        reply.end(turns)
                    elif screen.is_piped:
                        failed += is_once
                        break
                    else:
                        reply.end_line()
                        click.echo("Interrupted: nothing of this turn was kept.")
                except Exception as error:  # noqa: BLE001 (the conversation goes on)
                    failed += 1
                    reply.end_line()
                    failure = as_agent_error(error)
                    click.echo(f"{failure} {explain(failure)}", nl=False)
                except KeyboardInterrupt:  # the second one in a turn
                    reply.end_line()
                    break
        run_to_end(runner, runtime.close())
        if not is_once:
            notice = runtime.retention_notice if done else "Nothing was added to it."
            click.echo(f"\nThis was session {session}. {notice}")
        code = int(screen.is_piped and failed > 0)
        if screen.is_live:
            os._exit(code)  # a thread that hangs in a tool would keep the process alive
    sys.exit(code)


async def _take_back(runtime: Any, turn: Turn) -> int:
    async with runtime.sessions.open(turn.session_id, turn.actor) as session:
        return int(await session.take_back())


async def _look_up(command: str, runtime: Any, turn: Turn) -> str:
    """Return what a command prints."""
    if command == "/model":
        lines = [line for line in runtime.describe("") if runtime.settings.model in line]
    elif command == "/tools":
        from .turn import describe_tools

        tools = describe_tools(runtime.tools())
        lines = [f"{name}: {text.strip()}".partition("\n")[0] for name, text in tools]
    else:
        session = await runtime.sessions.read(turn.session_id, turn.actor)
        messages = session.data["messages"]
        texts = [(message["role"], text_of(message)) for message in messages]
        lines = [shorten(f"{role}: {text}", columns()) for role, text in texts if text]
    return re.sub(contract.CONTROL, "", "\n".join([*(lines or ["None."]), ""]))
