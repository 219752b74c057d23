"""Reads cases from the YAML files in evals/; evals/schema.json describes them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

FOLDER = Path("evals")


@dataclass
class Case:
    """A case, the file and line of its start, and the errors that keep it from running."""

    name: str
    place: str
    data: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def read_cases(names: tuple[str, ...]) -> list[Case]:
    """Return all cases, or only those with these names; invalid cases have errors."""
    schema = json.loads((FOLDER / "schema.json").read_text("utf-8"))
    cases_by_name: dict[str, Case] = {}
    for path in sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("*.yml")]):
        if path.name == "promptfooconfig.yaml":
            continue
        for case in _read(path, Draft202012Validator(schema)):
            if case.name in cases_by_name:
                case.errors.append(
                    f"{case.place}: {cases_by_name[case.name].place} has the same name"
                )
                case.name = case.place
            cases_by_name[case.name] = case
    unknown = [name for name in names if name not in cases_by_name]
    for name in unknown:
        cases_by_name[name] = Case(name, "", errors=[f"there is no case {name} in {FOLDER}/*.yaml"])
    # The name of an invalid case is unknown, so report invalid cases too.
    return [
        case
        for case in cases_by_name.values()
        if not names or case.name in names or (unknown and case.errors)
    ]


def _read(file: Path, validator: Draft202012Validator) -> list[Case]:
    path = file.as_posix()
    try:
        data = YAML().load(file.read_text("utf-8"))
    except (OSError, ValueError, YAMLError, RecursionError) as error:
        line = 1
        message = "the file is not YAML in UTF-8"
        if isinstance(error, MarkedYAMLError) and error.problem_mark:
            line = error.problem_mark.line + 1
            message = str(error.problem)
        return [Case(f"{path}:{line}", f"{path}:{line}", errors=[f"{path}:{line}: {message}"])]
    cases: list[Case] = []
    errors_by_case: dict[int, list[str]] = {}
    for problem in validator.iter_errors(data):
        location = [*problem.absolute_path]
        index = location[1] if location[:1] == ["cases"] and len(location) > 1 else -1
        message = f"{path}:{_line(data, location)}: {problem.message[:200]}"
        errors_by_case.setdefault(index, []).append(message)
    if -1 in errors_by_case:
        return [Case(path, f"{path}:1", errors=errors_by_case[-1])]
    for index, case in enumerate(data["cases"]):
        place = f"{path}:{_line(data, ['cases', index])}"
        errors = errors_by_case.get(index, [])
        name = place if errors else str(case["name"])
        cases.append(Case(name, place, {} if errors else json.loads(json.dumps(case)), errors))
    return cases


def _line(data: Any, path: list[Any]) -> int:
    """Return the line of a value, or of the nearest value around it that has a position."""
    line = 0
    for key in path:
        try:
            line = (data.lc.key(key) if isinstance(key, str) else data.lc.item(key))[0]
            data = data[key]
        except (AttributeError, KeyError, TypeError):
            break
    return line + 1
