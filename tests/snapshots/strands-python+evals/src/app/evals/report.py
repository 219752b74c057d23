"""Tells the results: a table, transcripts, and files for CI."""

from html import escape
from typing import Any
from xml.etree import ElementTree

from .run import transcript
from .statistics import SURE, by_chance, interval

Runs = dict[str, list[dict[str, Any]]]


def passed(runs: list[dict[str, Any]]) -> int:
    """Return how many runs passed."""
    return sum(not run["failures"] for run in runs)


def verdict(runs: list[dict[str, Any]], before: list[dict[str, Any]] | None = None) -> str:
    """Return the result of a case in words, compared with an earlier one."""
    if "skipped" in runs[0]:
        return "skipped"
    count, number = passed(runs), len(runs)
    text = "passed" if count == number else "FAILED"
    if number > 1:
        low, high = interval(count, number)
        text = f"{text} {count}/{number} ({low:.0%} to {high:.0%})"
    if before and "skipped" not in before[0]:
        earlier, number_before = passed(before), len(before)
        if earlier * number != count * number_before:
            chance = by_chance(count, number, earlier, number_before)
            sure = "more than chance" if chance < SURE else f"by chance in {chance:.0%}"
            text += f", before {earlier}/{number_before}, {sure}"
    return text


def table(all_runs: Runs, before: Runs) -> str:
    """Return a line for each case: its result, tokens and time."""
    width = max([len(name) for name in all_runs] + [4])
    lines = [f"{'case':<{width}}  tokens  seconds  result"]
    for name, runs in all_runs.items():
        tokens = sum(run.get("tokens", 0) for run in runs)
        seconds = sum(run.get("seconds", 0) for run in runs)
        result = verdict(runs, before.get(name))
        lines.append(f"{name:<{width}}  {tokens:>6}  {seconds:>7.1f}  {result}")
    return "\n".join(lines)


def failures(all_runs: Runs) -> str:
    """Return the first run of each case that failed: its transcript, and why."""
    shown: list[str] = []
    for name, runs in all_runs.items():
        for run in [run for run in runs if run["failures"]][:1]:
            place = f" ({run['place']})" if run["place"] not in {"", name} else ""
            lines = [f"{name}{place}", *transcript(run["turns"]).splitlines()]
            lines += [f"- {why}" for why in run["failures"]]
            shown.append("\n    ".join(line for line in lines if line))
    return "\n\n".join(shown)


def junit(all_runs: Runs) -> str:
    """Return the results as JUnit XML."""
    suite = ElementTree.Element("testsuite", name="evals", tests=str(len(all_runs)))
    for name, runs in all_runs.items():
        seconds = str(round(sum(run.get("seconds", 0) for run in runs), 3))
        case = ElementTree.SubElement(suite, "testcase", name=name, classname="evals", time=seconds)
        if "skipped" in runs[0]:
            ElementTree.SubElement(case, "skipped", message=runs[0]["skipped"])
        elif passed(runs) < len(runs):
            why = ElementTree.SubElement(case, "failure", message=verdict(runs))
            why.text = "".join(c for c in failures({name: runs}) if c >= " " or c == "\n")
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def summary(all_runs: Runs, before: Runs) -> str:
    """Return Markdown: the table, and for each case that changed both transcripts."""
    total = sum(run.get("tokens", 0) for runs in all_runs.values() for run in runs)
    lines = ["### Evals", "", "| case | result |", "|---|---|"]
    lines += [f"| {name} | {verdict(runs, before.get(name))} |" for name, runs in all_runs.items()]
    lines += ["", f"{total} tokens."]
    for name, runs in all_runs.items():
        said, earlier = (
            transcript(it[0]["turns"]) if it else "" for it in (runs, before.get(name))
        )
        if said != earlier and (earlier or passed(runs) < len(runs)):
            cells = [f"<td><pre>{_plain(text[:4000])}</pre></td>" for text in (earlier, said)]
            lines += ["", f"<details><summary>{escape(name)}</summary><table>"]
            lines += ["<tr><th>before</th><th>now</th></tr>", f"<tr>{''.join(cells)}</tr>"]
            lines += ["</table></details>"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return a text for HTML in Markdown: a blank line would end the HTML, and @ tell somebody."""
    return escape(text).replace("\n", "&#10;").replace("@", "&#64;")
