"""Loads the projects that stdin lists, as folders, in a render: what its models make of them."""

import json
import sys
from pathlib import Path

from app.memory.frontmatter import read  # type: ignore[import-not-found]
from app.memory.models import Agent, Iam  # type: ignore[import-not-found]
from app.memory.project import load_project  # type: ignore[import-not-found]

MODELS = {"agent": Agent, "iam": Iam}


def loaded(folder: Path) -> dict[str, object]:
    project = load_project(folder)
    (collection,) = project.collections.values()
    found = {"collection": collection, "reads": project.reads, "writes": project.writes}
    for kind, model in MODELS.items():
        (path,) = folder.glob(f"*/*.{kind}.md")
        found[kind] = model.model_validate(read(path, path.name).data)
    return {
        name: value if isinstance(value, list) else value.model_dump(mode="json", exclude_none=True)
        for name, value in found.items()
    }


json.dump([loaded(Path(folder)) for folder in json.load(sys.stdin)], sys.stdout)
