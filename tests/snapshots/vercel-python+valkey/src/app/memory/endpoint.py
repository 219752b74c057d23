"""What a custom endpoint does otherwise than its contract wants: `check --endpoint`."""

from typing import Any

from ..settings import diagnostic
from .backends import Unavailable
from .causes import UNSENT
from .endpoint_check import EndpointCheck
from .models import Collection
from .operations import Operations
from .options import Options
from .secrets import Secrets, references_of
from .transport import open_transport

# Finding -> what the endpoint did, and what the contract wants.
MESSAGES = {
    "AML-C00": "This agent names no collection with backend.type custom: nothing was called.",
    "AML-C01": "The endpoint does not do what the contract says: {0}.",
    "AML-C02": "load_snapshot answered a snapshot of an unknown session: answer null.",
    "AML-C03": "load_manifest answered a manifest of an unknown session: answer null.",
    "AML-C04": "list_snapshot_ids answered ids of an unknown session: answer an empty list.",
    "AML-C05": "load_snapshot answered another snapshot than was saved: keep it as it is.",
    "AML-C06": "load_snapshot answered an old snapshot: the last one saved as latest counts.",
    "AML-C07": "load_snapshot answered the snapshot of another scope: keep scopes apart.",
    "AML-C08": "An ETag was not that of the last save: make a new one at each save.",
    "AML-C09": "{0} of {1} saves that replace the same ETag were accepted: accept one.",
    "AML-C10": "A save with the If-Match of an older ETag was accepted: answer 412.",
    "AML-C11": "A save with If-None-Match: * replaced a snapshot: answer 412.",
    "AML-C12": "A load with the If-None-Match of an older ETag got 304: answer the snapshot.",
    "AML-C13": "load_snapshot answered another checkpoint than was saved under its id.",
    "AML-C14": "A save with is_latest false changed latest: keep it under its id only.",
    "AML-C15": "list_snapshot_ids took no notice of limit or start_after, or left ids out.",
    "AML-C16": "load_manifest answered another manifest than was saved: keep it as it is.",
    "AML-C17": "delete_session left something of the session: delete all of it.",
    "AML-C18": "A call without credentials was answered: refuse it with 401.",
    "AML-C19": "A save without a condition was refused as a conflict: accept it.",
    "AML-C20": "No ETag came: of two instances in one session the last to save wins. Send one.",
    "AML-C21": "The endpoint was not called: {0}.",
}


async def check_endpoint(
    collection: Collection, agent_id: str, options: Options, secrets: Secrets, file: str, line: int
) -> list[dict[str, Any]]:
    """The findings of a custom collection, at the line of its transport."""
    check = EndpointCheck(agent_id)
    try:
        for looked in references_of(collection):
            await secrets.get(*looked)
        endpoint = Operations(open_transport(collection, options, secrets))
    except Unavailable as error:
        return [diagnostic("AML-C21", MESSAGES["AML-C21"].format(error), "error", file, line)]
    try:
        await check.run(endpoint)
        transport: Any = getattr(collection.backend, "transport", None)
        if transport.credentials.scheme in {"api-key", "bearer-token"}:
            await check.run_as_stranger(Operations(open_transport(collection, options, None)))
    except Unavailable as error:
        is_called = not any(words in str(error) for words in UNSENT)
        check.say("AML-C01" if is_called else "AML-C21", error)
    severities = {"AML-C20": "warning"}
    return [
        diagnostic(id, MESSAGES[id].format(*names), severities.get(id, "error"), file, line)
        for id, names in sorted(check.found.items())
    ]
