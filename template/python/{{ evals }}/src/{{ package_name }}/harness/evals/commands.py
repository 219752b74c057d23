"""The command `eval`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from ..capability import App

FILE = click.Path(dir_okay=False, path_type=Path)


def _set_model(_: Any, __: Any, model: str | None) -> None:
    if model:
        os.environ["MODEL"] = model


@click.command("eval")
@click.argument("names", nargs=-1)
@click.option(
    "--model", callback=_set_model, expose_value=False, help="Model to use instead of MODEL."
)
@click.option("--repeat", default=1, type=click.IntRange(1, 1000), help="Number of runs per case.")
@click.option("--jobs", default=4, type=click.IntRange(1, 100), help="Number of cases at once.")
@click.option("--against", type=FILE, help="Compare with results that --json wrote.")
@click.option("--json", "as_json", type=FILE, help="Write the results as JSON.")
@click.option("--junit", type=FILE, help="Write the results as JUnit XML.")
@click.option("--summary", type=FILE, help="Write the results as Markdown.")
@click.option("--from", "session", metavar="SESSION", help="Print a stored session as a case.")
@click.option("--promptfoo", is_flag=True, help="Write evals/promptfooconfig.yaml; run no case.")
@click.pass_obj
def evaluate(
    app: App,
    names: tuple[str, ...],
    repeat: int,
    jobs: int,
    against: Path | None,
    as_json: Path | None,
    junit: Path | None,
    summary: Path | None,
    session: str | None,
    promptfoo: bool,
) -> None:
    """Run all cases in evals/, or only NAMES; exit with 1 if a case fails."""
    from ..late_errors import run_to_end, survive_late_errors
    from . import report
    from .cases import read_cases

    if session:
        return click.echo(asyncio.run(_session_case(app, session)), nl=False)
    cases = read_cases(names)
    if promptfoo:
        return _write_promptfoo(cases)
    before = _read_results(against) if against else {}
    with asyncio.Runner() as runner:
        survive_late_errors(runner.get_loop())
        runs = run_to_end(runner, _run(app, cases, repeat, jobs))
        click.echo("\n\n" + report.table(runs, before))
        if details := report.failures(runs):
            click.echo("\n" + details)
        errors = sum(report.errors(case_runs) > 0 for case_runs in runs.values())
        not_passed = sum(report.passed(case_runs) < len(case_runs) for case_runs in runs.values())
        failed = not_passed - errors
        not_run = len(cases) - len(runs)
        unfinished = f", {errors} without a verdict" if errors else ""
        unfinished += f", {not_run} not run" if not_run else ""
        tokens = sum(run.get("tokens", 0) for case_runs in runs.values() for run in case_runs)
        click.echo(f"\n{len(runs)} cases, {failed} failed{unfinished}; {tokens} tokens.")
        if as_json:
            as_json.write_text(json.dumps({"cases": runs}, ensure_ascii=False, indent=1), "utf-8")
        if junit:
            junit.write_text(report.junit(runs), "utf-8")
        if summary:
            summary.write_text(report.summary(runs, before), "utf-8")
        code = 1 if not_passed or not_run or not cases else 0
        if not_run or any(run.get("late") for case_runs in runs.values() for run in case_runs):
            sys.stdout.flush()
            os._exit(code)  # a hanging thread would keep the process alive
    sys.exit(code)


async def _run(app: App, cases: list[Any], repeat: int, jobs: int) -> Any:
    from ..capability import check_all
    from ..findings import refuse_errors
    from ..modules import check_agent
    from ..runtime import Runtime
    from .run import Runner
    from .stubs import Stubs

    settings, findings = app.read_settings()
    capabilities = [*app.make_capabilities(settings), Stubs(settings, [], app.load)]
    # Only cases with `real: true` reach stores and memories and read their secrets.
    without_stores = [it for it in capabilities if not hasattr(it, "traced_as")]
    needed = capabilities if any(case.data.get("real") for case in cases) else without_stores
    modules = app.load()
    findings += [*check_agent(modules.agent), *modules.model.check_model(settings)]
    refuse_errors([*findings, *check_all(needed)])
    if settings.model == "offline":
        click.echo("MODEL is not set: the `offline` lines of the cases replace the model.")
    isolated = [it for it in without_stores if not hasattr(it, "reads_secrets")]
    runtime = Runtime(settings, modules, isolated, logs_turns=False)
    real = runtime
    if needed is capabilities:
        real = Runtime(settings, modules, capabilities, logs_turns=False)
    for unopened in {id(it): it for it in (runtime, real)}.values():
        await unopened.open()
    try:
        runner = Runner(settings, runtime, real)
        return await runner.run_all(cases, repeat, jobs, _show_progress)
    finally:
        await runtime.close()
        if real is not runtime:
            await real.close()


async def _session_case(app: App, session: str) -> str:
    from ..capability import check_all
    from ..findings import refuse_errors
    from ..runtime import Runtime
    from .session_case import case_of

    settings, findings = app.read_settings()
    capabilities = app.make_capabilities(settings)
    refuse_errors([*findings, *check_all(capabilities)])
    runtime = Runtime(settings, app.load(), capabilities)
    await runtime.open()
    try:
        stored = await runtime.sessions.store.load(session)
    finally:
        await runtime.close()
    if not stored or not stored.snapshot:
        raise click.ClickException(f"Nothing is stored for session {session}.")
    return case_of(session, json.loads(stored.snapshot)["data"]["messages"])


def _show_progress(run: dict[str, Any]) -> None:
    is_error = "error" in run
    failed = "F" if run["failures"] else "."
    click.echo("s" if "skipped" in run else "E" if is_error else failed, nl=False)


def _read_results(path: Path) -> Any:
    try:
        cases = json.loads(path.read_text("utf-8"))["cases"]
    except (OSError, ValueError, KeyError, TypeError):
        message = f"{path} has no results: pass a file that --json wrote."
        raise click.ClickException(message) from None
    return cases


def _write_promptfoo(cases: list[Any]) -> None:
    from ruamel.yaml import YAML

    from .promptfoo import config

    path = "evals/promptfooconfig.yaml"
    with open(path, "w", encoding="utf-8") as file:
        YAML().dump(config(cases), file)
    click.echo(f"Wrote {path}. Start `serve`, then run: npx promptfoo eval -j 1 -c {path}")
