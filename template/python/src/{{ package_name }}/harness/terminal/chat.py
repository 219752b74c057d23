"""The command `chat`."""

import asyncio
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

import click

from .. import contract
from ..app import AgentApp
from ..files import check_files, read_path
from ..late_errors import run_to_end, survive_late_errors
from .screen import Screen


@click.command()
@click.argument("question", required=False)
@click.option("--session", help="Continue this session.")
@click.option("--actor", help="Chat as this actor.")
@click.option(
    "--file", "files", multiple=True, help="Attach this file to the first prompt; may repeat."
)
@click.pass_obj
def chat(
    app: AgentApp,
    question: str | None,
    session: str | None,
    actor: str | None,
    files: tuple[str, ...],
) -> None:
    """Chat with the agent in a terminal or a pipe, one prompt per line.

    With a QUESTION, print only the reply and exit.
    """
    if session is not None and not re.fullmatch(contract.SESSION_ID, session):
        raise click.BadParameter(contract.ERRORS["invalid_session_id"][1])
    if actor is not None and not re.fullmatch(contract.ACTOR_ID, actor):
        raise click.BadParameter(contract.ERRORS["invalid_actor"][1])
    settings, findings = app.read_settings()
    screen = open_screen(settings.project_name, is_single_question=question is not None)
    model = "offline model" if settings.model == "offline" else settings.model
    screen.welcome(f"{settings.project_name}, {model}")
    # Frameworks take seconds to load, so import them after the first line.
    from ..runtime import start_runtime
    from .conversation import Conversation

    runtime = start_runtime(app, settings, findings, logs_turns=False)
    try:
        attached = [read_path(Path(path), settings) for path in files]
        check_files(attached, runtime.file_types, settings)
    except contract.AgentError as error:
        raise click.ClickException(str(error)) from None
    if runtime.actor_required and actor is None:
        actor = "local-user"
        click.echo(f"You are {actor}. Use `--actor ID` for another actor.")
    with asyncio.Runner() as runner:
        survive_late_errors(runner.get_loop())
        runner.run(runtime.open())
        conversation = Conversation(runner, runtime, screen, session or str(uuid4()), actor)
        conversation.files = attached
        if question is None:
            if session is not None:
                conversation.follow()
            while not conversation.is_over and (line := conversation.read()) is not None:
                conversation.handle(line)
        else:
            conversation.handle(question)
        run_to_end(runner, runtime.turns.drain(settings.shutdown_grace_seconds))
        run_to_end(runner, runtime.close())
        if question is None:
            notice = runtime.retention_notice if conversation.turns else "Nothing was added to it."
            click.echo(f"\nThis was session {conversation.session_id}. {notice}")
        code = int(screen.is_piped and conversation.failures > 0)
        if screen.is_live or screen.is_reading:
            sys.stdout.flush()
            os._exit(code)  # a hanging or reading thread would keep the process alive
    sys.exit(code)


def open_screen(project_name: str, is_single_question: bool) -> Screen:
    """Return the screen for this terminal or pipe."""
    is_terminal = sys.stdout.isatty() and os.getenv("TERM") != "dumb"
    if is_terminal and (is_single_question or sys.stdin.isatty()):
        from .terminal import Terminal  # importing its libraries takes 0.1 s

        return Terminal(project_name, is_single_question)
    return Screen(is_single_question)
