"""Words for a set of renders: the fewest that say exactly which they are."""

from collections.abc import Collection, Iterable
from functools import cache

Phrases = dict[str, frozenset[str]]


def words(renders: Collection[str], everything: Iterable[str]) -> str:
    """Name `renders`, which are some of `everything`: "all renders", "every python render", …

    Each part of the text stands for renders that are all meant, so the text is exact.
    """
    universe = frozenset(everything)
    if universe == frozenset(renders):
        return "all renders"
    known = phrases(universe)
    said = cover(frozenset(renders), known)
    others = cover(universe - frozenset(renders), known)
    if said and 0 < len(others) < len(said):
        return f"all renders but {', '.join(others)}"
    return ", ".join(said)


@cache
def phrases(everything: frozenset[str]) -> Phrases:
    """What can be said of a render named `<framework>-<language>+<option>…`, the widest first."""
    found: dict[str, set[str]] = {}
    for render in everything:
        target, *options = render.split("+")
        groups = {f"{target} (all)"}
        for part in target.split("-"):
            groups.add(f"every {part} render")
            groups.update(f"every {part} render with +{option}" for option in options)
        groups.update(f"every render with +{option}" for option in options)
        groups.update({f"{target} with +{option} (all)" for option in options})
        groups.add(
            "every render without an option" if not options else "every render with an option"
        )
        for group in groups:
            found.setdefault(group, set()).add(render)
    wide = {name: frozenset(group) for name, group in found.items() if len(group) > 1}
    order = sorted(wide, key=lambda name: (-len(wide[name]), len(name), name))
    return {name: wide[name] for name in order}


def cover(renders: frozenset[str], known: Phrases) -> list[str]:
    """Phrases that together mean `renders`, each time the one that adds the most."""
    said, left = [], set(renders)
    usable = {name: group for name, group in known.items() if group <= renders}
    while usable and left:
        best = max(usable, key=lambda name: len(usable[name] & left))
        if len(usable[best] & left) < 2:
            break
        said.append(best)
        left -= usable[best]
    return said + sorted(left)
