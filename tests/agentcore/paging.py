"""Lists in pages, as all operations of the service hand them out."""

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import TypeVar

from tests.agentcore.state import Given, invalid

DEFAULT_PAGE = 20

T = TypeVar("T")


def page(
    given: Given,
    items: Iterable[tuple[str, T]],
    newest_first: bool = False,
    frail: bool = False,
) -> tuple[list[T], Given]:
    """The next items in the order of their keys, and the token of the page after them.

    A token holds the key of the last item, so that what comes or goes between two pages neither
    repeats nor hides another item. It is refused for a list that was asked for otherwise, and a
    `frail` one when that item is gone.
    """
    ordered = sorted(items, key=lambda item: item[0], reverse=newest_first)
    size = given.get("maxResults", DEFAULT_PAGE)
    asked = _asked(given)
    if "nextToken" in given:
        last = _last(given["nextToken"], asked)
        if frail and last not in (key for key, _ in ordered):
            raise invalid("nextToken", "The token is no longer valid")
        ordered = [i for i in ordered if (i[0] < last if newest_first else i[0] > last)]
    found = [item for _, item in ordered[:size]]
    if len(ordered) <= size:
        return found, {}
    token = json.dumps([asked, ordered[size - 1][0]]).encode()
    return found, {"nextToken": base64.urlsafe_b64encode(token).decode()}


def _asked(given: Given) -> str:
    same = {name: value for name, value in given.items() if name not in ("nextToken", "maxResults")}
    return hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _last(token: str, asked: str) -> str:
    try:
        of, last = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise invalid("nextToken", "Invalid token") from error
    if of != asked:
        raise invalid("nextToken", "The token belongs to another request")
    return str(last)
