"""What is refused in front matter before it is parsed: what it never needs."""

import re

from .yaml_core import Wrong

# No front matter needs these, and parsers disagree on them: tabs and other control
# characters, directives, the marks of further documents, lines of `? key` or `: value`, and a
# colon that ends in brackets.
UNSAFE = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
    "|^(%|---|[.]{3}|[ -]*[?:]( |$))|:[]},]",
    re.MULTILINE,
)
REFUSED = {"\t": "E0D0", "%": "E0D2", "---": "E0D2", "...": "E0D2"}


def unsafe(text: str) -> Wrong | None:
    """What is refused in a text though it may be YAML, and in which line of its file."""
    match = UNSAFE.search(text)
    if match is None:
        return None
    is_visible = " " <= match[0][0] <= "~"
    rule = REFUSED.get(match[0], "E002" if is_visible else "E0D1")
    return f"AML-{rule}", text.count("\n", 0, match.start()) + 2, {}
