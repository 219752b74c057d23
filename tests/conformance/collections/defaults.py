"""Loads the projects that stdin lists, each with a folder: the values of their fields."""

import json
import sys
from pathlib import Path

from my_agent.harness.collections.check import load_project  # type: ignore[import-not-found]
from my_agent.harness.collections.models import Agent, Grants  # type: ignore[import-not-found]
from my_agent.harness.collections.reader import read_document  # type: ignore[import-not-found]

MODELS = {"agent": Agent, "iam": Grants}


def loaded(folder: Path) -> dict[str, object]:
    """The one collection of a project, its agent and its grants."""
    project = load_project(folder, None)
    (collection,) = project.collections.values()
    found = {"collection": collection, "reads": project.reads, "writes": project.writes}
    for kind, model in MODELS.items():
        (path,) = folder.glob(f"*/*.{kind}.md")
        found[kind] = model.model_validate(read_document(path, path.name).data)
    return {
        name: value if isinstance(value, list) else value.model_dump(mode="json", exclude_none=True)
        for name, value in found.items()
    }


json.dump([loaded(Path(one["folder"])) for one in json.load(sys.stdin)], sys.stdout)
