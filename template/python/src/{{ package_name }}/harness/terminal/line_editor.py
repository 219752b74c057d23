"""The line editor of `chat` and its history."""

import os
import re
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle

from .screen import HELP

MAX_BYTES = 1 << 20  # of the history
KEYS = KeyBindings()

# Only menus need the cursor position, and some terminals do not report it.
os.environ["PROMPT_TOOLKIT_NO_CPR"] = "1"


@KEYS.add("escape", "enter")
def begin_line(event: KeyPressEvent) -> None:
    """Insert a line break into the prompt."""
    event.current_buffer.newline()


class History(FileHistory):
    """The user's prompts from this conversation and earlier conversations."""

    def append_string(self, string: str) -> None:
        if string.strip():
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Save a prompt, unless it has several lines, as pasted files do."""
        if "\n" not in string:
            with suppress(OSError):  # such as a full disk
                super().store_string(string)


def open_history(project_name: str) -> History:
    """Return the history, cut to its newest part; it is empty if its file is not writable."""
    state = os.getenv("XDG_STATE_HOME", "")
    home = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    path = Path(home, project_name, "chat_history")
    if not path.is_absolute():  # the user has no home
        return History(os.devnull)
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.touch(0o600)
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            path.write_bytes(content[-MAX_BYTES // 2 :])
    except OSError:
        return History(os.devnull)
    return History(path)


def make_editor(project_name: str) -> PromptSession[str]:
    """Return the line editor for prompts."""
    return PromptSession(
        history=open_history(project_name),
        completer=WordCompleter(re.findall(r"^/\w+", HELP, re.MULTILINE), sentence=True),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        key_bindings=KEYS,
    )


async def read_line(
    message: AnyFormattedText, editor: PromptSession[str] | None = None
) -> str | None:
    """Return a line or a paste; None means the end of the conversation."""
    editor = editor or PromptSession()
    while True:
        try:
            with patch_stdout(raw=True):  # log lines appear above the prompt
                return await editor.prompt_async(
                    message, enable_suspend=True, set_exception_handler=False
                )
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not editor.default_buffer.text:
                return None
