"""The command line of the agent."""

import asyncio
import errno
import gc
import io
import json
import logging
import os
import sys
from pathlib import Path
from select import select
from typing import Any

import click

from .app import AgentApp
from .capability import Capability, check_all, overrides, ping_all
from .enabled import COMMANDS, OPTIONS
from .findings import Finding, diagnostic, errors_of, format_finding
from .log import Formatter, describe
from .modules import AgentModule, ModelModule, check_agent, check_final_tools
from .project import Project
from .settings import CoreSettings, proxy_variables
from .terminal.chat import chat

# Commands import frameworks and clients when they run, so that --help stays fast.


def make_cli(app: AgentApp) -> click.Group:
    """Return the command line of an agent."""

    @click.group()
    @click.pass_context
    def cli(context: click.Context) -> None:
        """Chat with the agent, serve it over HTTP, or check its settings."""
        context.obj = app
        enter_project()
        for name in ("stdin", "stdout", "stderr"):
            open_stream(name)
        handler = logging.StreamHandler()
        handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(handlers=[handler])
        # Some loggers print exceptions that may quote prompts; others print each lost connection.
        for name in ("ai", "asyncio", "opentelemetry", "strands", "uvicorn"):
            logging.getLogger(name).setLevel("CRITICAL")

    for command in (check, serve, chat, *COMMANDS):
        cli.add_command(command)
    return cli


def enter_project() -> None:
    """Change from a subfolder to the project folder, to read its .env.

    Stay in the subfolder if it has its own `.env` file or `agents` folder.
    """
    project = Project.package.resolve().parents[1]
    is_inside = project in Path.cwd().parents
    if is_inside and not (Path(".env").exists() or Path("agents").exists()):
        os.chdir(project)


def open_stream(name: str) -> None:
    """Set a standard stream to UTF-8; reopen a closed stream."""
    stream: Any = getattr(sys, name)
    if stream is None:  # otherwise the next file or socket would get its number
        stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115
        setattr(sys, name, stream)
    stream.reconfigure(encoding="utf-8", errors="replace")


class OutputWithoutReader(io.FileIO):
    """An output that stays writable after its reader, such as `head`, exits."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self.stream = stream  # keeps the descriptor open

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # a full non-blocking pipe
                select([], [self], [])
            return written
        except BrokenPipeError:
            return len(data)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--connect", is_flag=True, help="Also call the models, stores and services.")
@click.pass_obj
def check(app: AgentApp, as_json: bool, connect: bool) -> None:
    """Report errors in settings and files; exit with 1 if any exist."""
    from .http.routes import check_own_routes

    settings, findings = app.read_settings()
    modules = app.load()
    capabilities = app.make_capabilities(settings)
    findings += [*modules.model.check_model(settings), *check_all(capabilities)]
    mistakes = check_agent(modules.agent)
    findings += mistakes or check_own_tools(modules.agent, capabilities)
    findings += [*check_own_routes(modules.routes), *check_runtime(modules.model, settings)]
    if connect and not errors_of(findings):
        findings += asyncio.run(call_all(modules.model, settings, capabilities))
    errors = len(errors_of(findings))
    warnings = len(findings) - errors
    if as_json:
        report = {"diagnostics": findings, "errors": errors, "warnings": warnings}
        click.echo(json.dumps(report, ensure_ascii=False, separators=(",", ":")))
    else:
        lines = [*map(format_finding, findings), f"{errors} errors, {warnings} warnings"]
        click.echo("\n".join(lines))
    sys.exit(min(errors, 1))


async def call_all(
    model: ModelModule, settings: CoreSettings, capabilities: list[Capability]
) -> list[Finding]:
    """Return findings about the model and the external services."""
    from .models.model_call import call_model

    findings = await call_model(model, settings, "MODEL", settings.model)
    return [*findings, *await ping_all(capabilities)]


def check_runtime(model: ModelModule, settings: CoreSettings) -> list[Finding]:
    """Return findings about the server's address and the model's client."""
    from .http.serve import listen
    from .runtime import make_model

    findings = list[Finding]()
    try:
        listen(settings).close()
    except click.ClickException as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:  # this agent may be running
            findings.append(diagnostic("SET-HOST", error.message))
    if proxy_variables():  # only creating the client shows whether it supports them
        try:
            make_model(model, settings)
        except click.ClickException as error:
            findings.append(diagnostic("SET-PROXY", error.message))
    return findings


def check_own_tools(agent: AgentModule, capabilities: list[Capability]) -> list[Finding]:
    """Return findings about the agent's own tools."""
    from .tool_schemas import check_tools, report

    try:
        from .turn import declaration_of

        findings = check_tools([declaration_of(tool) for tool in agent.TOOLS])
        # FINAL_TOOLS is checked at startup if capabilities load their tools in `open`.
        if any(overrides(it, "open") and overrides(it, "tools") for it in capabilities):
            return findings
        more_tools = [tool for capability in capabilities for tool in capability.tools()]
        names = {declaration_of(tool)[0] for tool in [*agent.TOOLS, *more_tools]}
        return [*findings, *check_final_tools(agent, names)]
    except Exception as error:  # noqa: BLE001 (from the project's own module)
        return [report(f"Cannot check the tools: {describe(error)}.")]


@click.command()
@click.option("--reload", is_flag=True, help="Restart when a project file changes.")
@click.pass_obj
def serve(app: AgentApp, reload: bool) -> None:
    """Serve the agent over HTTP on HOST and PORT."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if not stream.isatty():
            writer = io.BufferedWriter(OutputWithoutReader(stream))
            lines = io.TextIOWrapper(writer, "utf-8", "replace", line_buffering=True)
            setattr(sys, name, lines)
    if reload:
        from .http.reload import serve_with_reload

        serve_with_reload()
    gc.disable()  # until the server listens: garbage collection takes 10 % of startup
    from .http.serve import run_server

    run_server(app)


check.params += OPTIONS["check"]
serve.params += OPTIONS["serve"]
