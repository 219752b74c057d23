"""What agents, their grants and the collections say of each other."""

import re
from collections.abc import Iterator
from typing import Any

from .frontmatter import Document
from .rules import at

Findings = Iterator[dict[str, Any]]
# The documents of one folder by their names there: `support` for agents/support.agent.md.
Documents = dict[str, Document]
BREADTH = {"none": 0, "session": 1, "project": 2, "user": 3}
STATUS = {"disabled": "AML-E102", "draft": "AML-E103", "deprecated": "AML-W208"}
ACCESS = {
    "none": (),
    "read": ("read",),
    "write": ("write",),
    "read-write": ("read", "write"),
    "deny": (),
}
UNGRANTED = {"read": "AML-E105", "write": "AML-E106"}
VARIABLE = re.compile("[$]([{(]|[A-Za-z_])")


def references(agent: Document) -> list[tuple[str, int, str]]:
    """The collections that an agent names: `read` or `write`, the place in that list, the id."""
    return [
        (verb, index, id)
        for verb in ("read", "write")
        for index, id in enumerate(agent.get("memory", f"{verb}_collections") or [])
        if agent.get("memory", f"{verb}_collections", index) is not None
    ]


def grants(iam: Document) -> list[tuple[int, str]]:
    """The collections that an IAM file names: the place in its list, and the id."""
    places = range(len(iam.get("collections") or []))
    refs = [(index, iam.get("collections", index, "ref")) for index in places]
    return [(index, ref) for index, ref in refs if ref is not None]


def lint_agent(name: str, agent: Document, collections: Documents, iam: Documents) -> Findings:
    """The findings in agents/<name>.agent.md, each at the item of the list that it is about."""
    if agent.get("agent_id") not in (None, name):
        expected = f"agents/{agent.get('agent_id')}.agent.md"
        yield at("AML-E122", agent, "agent_id", expected=expected)
    store, named, writers = None, references(agent), dict[str, str]()
    for verb, index, id in named:
        where = ("memory", f"{verb}_collections", index)
        names = {"name": id, "agent": name}
        if id not in collections:
            yield at("AML-E101", agent, *where, **names)
            continue
        yield from _reference(agent, where, collections[id], names)
        if collections[id].get("scope", "lifetime") == "session":
            store = store or id
            if id != store:
                yield at("AML-E109", agent, *where, **names)
        memory = collections[id].get("backend", "memory_id_secret")
        if verb == "write" and memory is not None and writers.setdefault(memory, id) != id:
            yield at("AML-E111", agent, *where, **names, other=writers[memory])
        access = _access(iam.get(name), id)
        if name not in iam:
            verbs = {verb for verb, _, other in named if other == id}
            yield at("AML-E10B", agent, *where, **names, access="-".join(sorted(verbs)))
        elif access == "deny":
            yield at("AML-E10A", agent, *where, **names)
        elif access is not None and verb not in ACCESS[access]:
            yield at(UNGRANTED[verb], agent, *where, **names)


def _reference(
    agent: Document, where: tuple[str | int, ...], collection: Document, names: dict[str, str]
) -> Findings:
    status, lifetime = collection.get("status"), collection.get("scope", "lifetime")
    mode = agent.get("memory", "mode")
    if status in STATUS:
        yield at(STATUS[status], agent, *where, **names)
    if mode is not None and lifetime is not None and BREADTH[lifetime] > BREADTH[mode]:
        yield at("AML-E104", agent, *where, **names, lifetime=lifetime, mode=mode)
    if where[1] == "write_collections" and collection.get("writeback", "enabled") is False:
        yield at("AML-E107", agent, *where, **names)


def _access(iam: Document | None, id: str) -> str | None:
    """What is granted: of several grants the first, without any `none`; None: it is unclear."""
    if iam is None or iam.data is None or ("collections",) in iam.invalid:
        return None
    for index, ref in grants(iam):
        if ref == id:
            access: str | None = iam.get("collections", index, "access")
            return access
    return "none"


def lint_iam(name: str, iam: Document, collections: Documents) -> Findings:
    """The findings in iam/<name>.iam.md."""
    if iam.get("agent_id") not in (None, name):
        yield at("AML-E142", iam, "agent_id", expected=f"iam/{iam.get('agent_id')}.iam.md")
    seen: set[str] = set()
    for index, ref in grants(iam):
        where = ("collections", index)
        access = iam.get(*where, "access")
        if ref in seen:
            yield at("AML-E14B", iam, *where, "ref", name=ref)
        seen.add(ref)
        if ref not in collections:
            yield at("AML-E149", iam, *where, "ref", name=ref)
            continue
        collection = collections[ref]
        if collection.get("status") == "disabled":
            yield at("AML-E14A", iam, *where, "ref", name=ref)
        is_read_only = collection.get("writeback", "enabled") is False
        if is_read_only and access is not None and "write" in ACCESS[access]:
            yield at("AML-E108", iam, *where, "access", name=ref)


def lint_variables(document: Document) -> Findings:
    """The findings at names and references that look as if something filled in a variable."""
    for where, text in document.texts.items():
        is_id = where[1:2] in (("read_collections",), ("write_collections",)) or where[-1:] == (
            "ref",
        )
        if (is_id or where[:1] == ("backend",)) and VARIABLE.search(text):
            yield at("AML-W209", document, *where)
