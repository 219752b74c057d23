"""Which part of a memory is one person's alone, and so may be erased for that person."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .namespaces import PLACEHOLDER, Place, Who, resolve


@dataclass
class Own:
    """The places of one person, and in words what else there is."""

    places: dict[str, Place] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # what to set, to find more
    shared: list[str] = field(default_factory=list)  # what cannot be told apart


def own_places(templates: Iterable[str], who: Who, sessions: list[str]) -> Own:
    """What lies below the segment with {actorId} of each template; `sessions` are this actor's."""
    own, templates = Own(), [*dict.fromkeys(templates)]
    if "/" in who.actor:
        own.shared.append("no records are made for an actor id with a /")
        return own
    for template in templates:
        part = _own_part(template)
        if not part:
            own.shared.append(f"records in {template} are of all people")
            continue
        if "{projectId}" in part and not who.project_id:
            own.missing.append(f"records in {template}: PROJECT_ID is not set")
            continue
        if "{projectId}" in part:
            own.shared.append(f"records in {template} are looked for in project {who.project_id}")
        if "{sessionId}" in part:
            own.shared.append(f"records in {template} are looked for by the sessions that it lists")
        for session in sessions if "{sessionId}" in part else [""]:
            try:
                place = resolve(part, replace(who, session_id=session))
            except ValueError as error:
                own.shared.append(f"records in {error}")
                break
            if any(_is_of_others(place, one, who.actor) for one in templates):
                own.shared.append(f"records in {place.path} may be of others too")
            else:
                own.places[place.path] = place
    return own


def _own_part(template: str) -> str:
    """The template up to the segment with {actorId}, and all below; "": it has none."""
    segments = template.strip("/").split("/")
    end = next((at for at, one in enumerate(segments, 1) if "{actorId}" in one), 0)
    return "/".join(["", *segments[:end], "*"]) if end else ""


def _is_of_others(place: Place, template: str, actor: str) -> bool:
    """Whether a template can mean something in that place for anybody else."""
    above = template.strip("/").split("/")[: place.path.count("/") - 1]
    pattern = ""
    for at, part in enumerate(PLACEHOLDER.split("/".join(above))):
        if at % 2 == 0:
            pattern += re.escape(part)
        elif part != "actorId":
            pattern += "[^/]+"
        else:
            pattern += "(?P=actor)" if "<actor>" in pattern else "(?P<actor>[^/]+)"
    found = re.fullmatch(pattern, place.path.strip("/"))
    return found is not None and found.groupdict().get("actor") != actor
