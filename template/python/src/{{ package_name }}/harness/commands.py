"""The commands of the agent."""

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
from .modules import AgentModule, ModelModule, check_final_tools, check_modules
from .project import Project
from .settings import CoreSettings, proxy_variables
from .terminal.chat import chat

# A command imports what loads a framework or a client when it runs, so that --help stays quick.


def make_cli(app: AgentApp) -> click.Group:
    """Return the command line of an agent."""

    @click.group()
    @click.pass_context
    def cli(context: click.Context) -> None:
        """Talk to the agent here, serve it over HTTP, or check its settings."""
        context.obj = app
        enter_project()
        for name in ("stdin", "stdout", "stderr"):
            open_stream(name)
        handler = logging.StreamHandler()
        handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(handlers=[handler])
        # These print exceptions that may quote prompts; asyncio's prints every refused connection.
        for name in ("ai", "asyncio", "opentelemetry", "strands", "uvicorn"):
            logging.getLogger(name).setLevel("CRITICAL")

    for command in (check, serve, chat, *COMMANDS):
        cli.add_command(command)
    return cli


def enter_project() -> None:
    """Work in the folder of the project, with its .env, also when started in a folder of it.

    A folder with settings or agents of its own is left alone.
    """
    project = Project.package.resolve().parents[1]
    is_inside = project in Path.cwd().parents
    if is_inside and not (Path(".env").exists() or Path("agents").exists()):
        os.chdir(project)


def open_stream(name: str) -> None:
    """Let a standard stream use UTF-8; open one that the caller has closed."""
    stream: Any = getattr(sys, name)
    if stream is None:  # a file or a socket would get its number
        stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115
        setattr(sys, name, stream)
    stream.reconfigure(encoding="utf-8", errors="replace")


class OutputWithoutReader(io.FileIO):
    """An output that a server writes to although its reader, such as `head`, has left."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream.fileno(), "w", closefd=False)
        self.stream = stream  # closes the descriptor when nothing refers to it

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # it does not block, and is full
                select([], [self], [])
            return written
        except BrokenPipeError:
            return len(data)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--connect", is_flag=True, help="Also call each model, store and service in use.")
@click.pass_obj
def check(app: AgentApp, as_json: bool, connect: bool) -> None:
    """Report errors in the settings and files; exit with 1 if there is one."""
    settings, findings = app.read_settings()
    modules = app.load()
    capabilities = app.make_capabilities(settings)
    findings += [*modules.model.check_model(settings), *check_all(capabilities)]
    missing = check_modules(modules)
    findings += missing or [
        *check_own_tools(modules.agent, capabilities),
        *check_runtime(modules.model, settings),
    ]
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
    """Return findings about the model and the services that the capabilities depend on."""
    from .models.model_call import call_model

    findings = await call_model(model, settings, "MODEL", settings.model)
    return [*findings, *await ping_all(capabilities)]


def check_runtime(model: ModelModule, settings: CoreSettings) -> list[Finding]:
    """Return findings about the address of the server and the client of the model."""
    from .http.serve import listen
    from .runtime import make_model

    findings = list[Finding]()
    try:
        listen(settings).close()
    except click.ClickException as error:
        if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:  # perhaps by this agent
            findings.append(diagnostic("SET-HOST", error.message))
    if proxy_variables():  # only the client of the model knows whether it can use them
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
        # Only an open capability knows its tools, such as those of a server: then the start checks.
        if any(overrides(it, "open") and overrides(it, "tools") for it in capabilities):
            return findings
        added = [tool for capability in capabilities for tool in capability.tools()]
        names = {declaration_of(tool)[0] for tool in [*agent.TOOLS, *added]}
        return [*findings, *check_final_tools(agent, names)]
    except Exception as error:  # noqa: BLE001 (whatever an owner's module may cause)
        return [report(f"The tools cannot be checked: {describe(error)}.")]


@click.command()
@click.option("--reload", is_flag=True, help="Restart when a file of the project changes.")
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
    gc.disable()  # until it listens: to look for garbage takes a tenth of the start
    from .http.serve import run_server

    run_server(app)


check.params += OPTIONS["check"]
serve.params += OPTIONS["serve"]
