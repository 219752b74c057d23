"""Whether the secrets that the collections of an agent name are there: for `check`, in time."""

import os
from pathlib import Path
from threading import Thread
from typing import Any

from .backends import Unavailable
from .frontmatter import read
from .options import Options
from .project import load_project
from .rules import finding
from .secrets import Secrets, references_of, variable_of
from .stores import keepers
from .yaml_core import Where

TRANSPORT = ("backend", "transport")
PLACES: list[Where] = [("backend", name) for name in ("endpoint_secret", "bucket_secret")]
PLACES += [(*TRANSPORT, name) for name in ("base_url", "function_arn", "function_id")]
PLACES += [(*TRANSPORT, "credentials", name) for name in ("name", "secret_id")]
# One of these is set, or one of these files is there, where somebody gave AWS credentials.
AWS_VARIABLES = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"]
AWS_VARIABLES += ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]
AWS_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}


def check_secrets(folder: Path, options: Options) -> list[dict[str, Any]]:
    """What cannot be found, in a project in which `check_project` finds no error.

    Without AWS credentials only the environment is looked at, and nothing is called.
    """
    found, secrets = [], Secrets(options)
    for collection in keepers(load_project(folder, options.agent_id)):
        file = f"collections/{collection.collection_id}.collection.md"
        document = read(folder / file, file)
        for reference, key, region in references_of(collection):
            named = (reference, reference.removeprefix("env:"))
            places = [one for one in PLACES if document.texts.get(one) in named]
            line = document.line(places[0]) if places else 1
            variable = variable_of(reference)
            hint = f"set {variable}, or " if variable else ""
            names = {"name": reference, "todo": f"{hint}create it in AWS Secrets Manager"}
            is_set = os.environ.get(variable, "").strip() != ""
            if reference.startswith("env:") and not is_set:
                found.append(finding("AML-W240", file, line, name=variable))
            elif not is_set and not has_aws():
                found.append(finding("AML-W242", file, line, **names))
            elif why := _why_not(secrets, reference, key, region, options.store_timeout_seconds):
                found.append(finding("AML-W241", file, line, **names, why=why))
    return found


def has_aws() -> bool:
    """Whether AWS credentials are given in the environment or in a file of this user."""
    home = Path("~/.aws").expanduser()
    files = [Path(os.environ.get(name) or home / file) for name, file in AWS_FILES.items()]
    return any(map(os.environ.get, AWS_VARIABLES)) or any(file.is_file() for file in files)


def _why_not(
    secrets: Secrets, reference: str, key: str | None, region: str | None, seconds: float
) -> str:
    """Why a secret cannot be had; '' when it can."""
    told = ["no answer in time"]

    def look() -> None:
        try:
            secrets.read(reference, key, region)
            told.append("")
        except Unavailable as error:
            said = str(error).removeprefix(f"secret {reference!r}: ")
            told.append(said.partition("; locally, ")[0])

    thread = Thread(target=look, daemon=True)  # which keeps nobody waiting at the end
    thread.start()
    thread.join(2 * seconds)  # it may be tried twice
    return told[-1]
