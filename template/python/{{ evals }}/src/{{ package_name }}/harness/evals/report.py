"""Formats results: a table, transcripts, and files for CI."""

from html import escape
from xml.etree import ElementTree

from .run import Run, transcript
from .statistics import describe_change, interval

Runs = dict[str, list[Run]]
SUMMARY_ROWS = 200
SUMMARY_LIMIT = 60_000  # characters; a comment on GitHub has at most 65,536
EXAMPLE_LIMIT = 4_000  # characters of an example in a summary


def passed(runs: list[Run]) -> int:
    """Return how many runs passed."""
    return sum(not run["failures"] and "error" not in run for run in runs)


def errors(runs: list[Run]) -> int:
    """Return how many runs have no result, because the judge was unavailable."""
    return sum("error" in run for run in runs)


def verdict(runs: list[Run], before: list[Run] | None = None) -> str:
    """Return the result of a case, compared with earlier runs."""
    if "skipped" in runs[0]:
        return "skipped"
    count = passed(runs)
    number = len(runs)
    if count_errors := errors(runs):
        return f"ERROR {count_errors}/{number}" if number > 1 else "ERROR"
    text = "passed" if count == number else "FAILED"
    if number > 1:
        text += f" {count}/{number}"
        if not _is_offline(runs):
            low, high = interval(count, number)
            text += f" ({low:.0%} to {high:.0%})"
    if not before or not _are_comparable(runs, before):
        return text
    count_before = passed(before)
    number_before = len(before)
    if count_before * number == count * number_before:
        return text
    text += f", before {count_before}/{number_before}"
    if not _is_offline(runs):
        return f"{text}: {describe_change(count, number, count_before, number_before)}"
    # The offline model is scripted: any difference is a change.
    if count_before == number_before:
        return f"{text}: broken"
    return f"{text}: fixed" if count == number else text


def _is_offline(runs: list[Run]) -> bool:
    return runs[0].get("model") == "offline"


def _are_comparable(runs: list[Run], before: list[Run]) -> bool:
    is_incomplete = any("skipped" in run or "error" in run for run in [*runs, *before])
    return not is_incomplete and _is_offline(runs) == _is_offline(before)


def _rows(all_runs: Runs, before: Runs) -> list[tuple[str, list[Run], str]]:
    """Return a row (name, runs, verdict) for all comparable cases together, and for each case."""
    rows = [(name, runs, verdict(runs, before.get(name))) for name, runs in all_runs.items()]
    shared = [
        name
        for name, runs in all_runs.items()
        if name in before and _are_comparable(runs, before[name]) and not _is_offline(runs)
    ]
    if len(shared) > 1:
        # A small decline in many cases is significant only for all of them together.
        now = [run for name in shared for run in all_runs[name]]
        earlier = [run for name in shared for run in before[name]]
        rows.insert(0, (f"all {len(shared)} cases", now, verdict(now, earlier)))
    return rows


def table(all_runs: Runs, before: Runs) -> str:
    """Return a table with one line per case: tokens, seconds and result."""
    rows = _rows(all_runs, before)
    width = max([len(name) for name, _, _ in rows] + [4])
    lines = [f"{'case':<{width}}  tokens  seconds  result"]
    for name, runs, result in rows:
        tokens = sum(run.get("tokens", 0) for run in runs)
        seconds = sum(run.get("seconds", 0) for run in runs)
        lines.append(f"{name:<{width}}  {tokens:>6}  {seconds:>7.1f}  {result}")
    return "\n".join(lines)


def failures(all_runs: Runs) -> str:
    """Return the transcript and the failures of each failed case, from its first failed run."""
    texts: list[str] = []
    for name, runs in all_runs.items():
        if passed(runs) < len(runs):
            place = runs[0]["place"]
            head = f"{name} ({place})" if place not in {"", name} else name
            lines = [head, *_example(runs).splitlines()]
            texts.append("\n    ".join(line for line in lines if line))
    return "\n\n".join(texts)


def _example(runs: list[Run]) -> str:
    """Return the transcript and failures of the first failed run, or else of the first run."""
    run = next((run for run in runs if run["failures"] or "error" in run), runs[0])
    reasons = [*run["failures"], *filter(None, [run.get("error")])]
    return "\n".join([transcript(run["turns"]), *(f"- {reason}" for reason in reasons)])


def junit(all_runs: Runs) -> str:
    """Return the results as JUnit XML."""
    suite = ElementTree.Element("testsuite", name="evals", tests=str(len(all_runs)))
    for name, runs in all_runs.items():
        seconds = str(round(sum(run.get("seconds", 0) for run in runs), 3))
        case = ElementTree.SubElement(suite, "testcase", name=name, classname="evals", time=seconds)
        if "skipped" in runs[0]:
            ElementTree.SubElement(case, "skipped", message=runs[0]["skipped"])
        elif passed(runs) < len(runs):
            kind = "error" if errors(runs) else "failure"
            failure = ElementTree.SubElement(case, kind, message=verdict(runs))
            failure.text = "".join(c for c in failures({name: runs}) if c >= " " or c == "\n")
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def summary(all_runs: Runs, before: Runs) -> str:
    """Return Markdown: the table, and examples of changed cases; failed cases come first."""
    total = sum(run.get("tokens", 0) for runs in all_runs.values() for run in runs)
    rows = sorted(_rows(all_runs, before), key=lambda row: passed(row[1]) == len(row[1]))
    lines = ["### Evals", "", "| case | result |", "|---|---|"]
    lines += [f"| {name} | {result} |" for name, _, result in rows[:SUMMARY_ROWS]]
    if len(rows) > SUMMARY_ROWS:
        lines.append(f"| {len(rows) - SUMMARY_ROWS} more | |")
    text = "\n".join([*lines, "", f"{total} tokens."]) + "\n"
    omitted = 0
    for name, runs, _ in rows:
        if name not in all_runs:
            continue
        now, earlier = (_example(it) if it else "" for it in (runs, before.get(name)))
        if now == earlier or (not earlier and passed(runs) == len(runs)):
            continue
        cells = [f"<td><pre>{_escape(it)}</pre></td>" for it in (earlier, now)]
        lines = ["", f"<details><summary>{escape(name)}</summary><table>"]
        lines += ["<tr><th>before</th><th>now</th></tr>", f"<tr>{''.join(cells)}</tr>"]
        details = "\n".join([*lines, "</table></details>"]) + "\n"
        if len(text) + len(details) > SUMMARY_LIMIT:
            omitted += 1
        else:
            text += details
    return f"{text}\n{omitted} more examples do not fit here.\n" if omitted else text


def _escape(text: str) -> str:
    """Escape text for HTML in Markdown: a blank line ends the HTML, and @ notifies users."""
    if len(text) > EXAMPLE_LIMIT:
        # The failures are at the end.
        text = f"{text[: EXAMPLE_LIMIT // 2]}\n...\n{text[-EXAMPLE_LIMIT // 2 :]}"
    return escape(text).replace("\n", "&#10;").replace("@", "&#64;")
