"""The public surface of the harness in TypeScript: an owner needs nothing else of it."""

import re

import pytest

from hooks.variants import TARGETS
from hooks.variants import VARIANTS as ALL
from tests.installed import rendered

TYPESCRIPT = [target for target in TARGETS if target.endswith("-typescript")]
USUAL = {
    *(f"strands-typescript{options}" for options in ("", "+anthropic", "+openai")),
    *(f"vercel-typescript{options}" for options in ("", "+anthropic", "+bedrock", "+gateway")),
    *(f"{target}+valkey+agentcore+knowledge-base" for target in TYPESCRIPT),
}
VARIANTS = [
    pytest.param(name, marks=[] if name in USUAL else pytest.mark.full)
    for name in ALL
    if "-typescript" in name
]
IMPORTED = re.compile(r"\bfrom\s+'(\.[^']+)'|\bimport\(\s*'(\.[^']+)'")
PUBLIC = "./harness/index.ts"
# A further door of the harness, and the files that may use it.
DOORS = {"./harness/vendor.ts": {"model.ts"}}


def imports(text: str) -> set[str]:
    return {one or other for one, other in IMPORTED.findall(text)}


def blocks(page: str) -> list[str]:
    """The sources in a page of the documentation."""
    return re.findall(r"^```ts\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_of_an_owner_import_public_names_only(variant: str) -> None:
    project = rendered(variant)
    sources = {path.name: path.read_text("utf-8") for path in (project / "src").glob("*.ts")}
    for page in (project / "docs").glob("*.md"):
        sources[page.name] = "\n".join(blocks(page.read_text("utf-8")))
    found = {
        f"{name} imports {imported}"
        for name, text in sources.items()
        for imported in imports(text)
        if "/harness/" in imported and imported != PUBLIC and name not in DOORS.get(imported, set())
    }
    assert found == set()
