"""Quotes and brackets of YAML that may be broken, a line at a time."""

import re

QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
ESCAPE = re.compile(r"""\\([0abtnvfre "/\\N_LP]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})""")
TOKEN = re.compile(
    rf"(?P<blank> +|(?<![^ ])#.*)|(?P<text>{QUOTED})|(?P<quote>[\"'])|(?P<open>[\[{{])"
    r"|(?P<close>[\]}])|(?P<mark>[&*!][^ ,\[\]{}]*)|(?P<next>[,:])"
    r"|(?P<plain>[^ ,:#\[\]{}](?:[^,:#\[\]{}]|:(?! |$)|(?<! )#)*)|(?P<odd>.)"
)


class Brackets:
    """Reads values in quotes and brackets; `open` has the brackets around, each with its line."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []

    def read(self, line: str, start: int, number: int) -> str | None:
        """The rule that a line breaks from `start` on, after the lines so far."""
        last = ""  # what stands before: a kind of token, or a comma or colon
        for token in TOKEN.finditer(line, start):
            kind, text = str(token.lastgroup), token[0].rstrip(" ")
            is_value = kind in ("text", "open", "mark", "plain")
            if kind == "quote" or (last == "text" and (is_value or kind == "odd")):
                return "E0D3"
            if kind == "text" and text[0] == '"' and "\\" in ESCAPE.sub("", text):
                return "E0D7"
            if kind == "open":
                self.open.append((text, number))
            elif kind == "close" and self.open:
                if self.open[-1][0] + text not in ("[]", "{}"):
                    return "E0D4"
                self.open.pop()
            elif kind != "blank" and (not self.open and last):
                return "E0D3" if last == "text" else "E002"
            elif kind in ("close", "odd") or self._is_stray(text, last):
                return "E002"
            last = last if kind == "blank" else text if kind == "next" else kind
        return None

    def _is_stray(self, text: str, last: str) -> bool:
        """Whether an indicator stands where no value may be, or a pair lacks its braces."""
        if text == ",":
            return last in (",", "open")
        is_in_list = bool(self.open) and self.open[-1][0] == "["
        return text in ("-", "?") or (text == ":" and is_in_list)
