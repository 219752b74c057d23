"""The core settings: environment variables, defaults and allowed values."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Self

from dotenv.parser import parse_stream

from .findings import Finding, diagnostic

HOST_FORM = r"[A-Za-z0-9_.:\[\]-]+"
# A name, whose last label is no number, or an address; then an optional port.
LABEL = r"[A-Za-z0-9_\u00a1-\uffff-]+"
BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
FILE_HOST_FORM = (
    rf"(({LABEL}\.)*(?![0-9]){LABEL}|{BYTE}(\.{BYTE}){{3}}|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{{0,4}})?"
)
VISIBLE = "[!-~]{1,4096}"
VISIBLE_TEXT = "visible ASCII characters"

BOOLEANS = {"1": True, "true": True, "0": False, "false": False}
SECRET = "(^|_|API)(KEY|PASSWORD|SECRET|TOKEN)$"  # names of settings with secret values


def integer(default: int, lowest: int, highest: int, *, required: bool = False) -> Any:
    """Declare a setting that is a whole number from `lowest` to `highest`."""

    def parse(text: str) -> int | None:
        is_number = re.fullmatch("-?[0-9]{1,15}", text) is not None
        return int(text) if is_number and lowest <= int(text) <= highest else None

    return _setting(default, parse, f"a whole number from {lowest} to {highest}", required)


def boolean(default: bool = False, *, required: bool = False) -> Any:
    """Declare a setting that is on or off."""
    return _setting(default, lambda text: BOOLEANS.get(text.lower()), "true or false", required)


def string(form: str, allowed: str, default: str | None = "", *, required: bool = False) -> Any:
    """Declare a string setting whose values match `form`; `allowed` describes them."""
    return _setting(default, _parser(form), allowed, required)


def string_list(
    form: str, allowed: str, default: tuple[str, ...] = (), *, required: bool = False
) -> Any:
    """Declare a setting that is a comma-separated list of strings matching `form`."""
    parse_item = _parser(form)

    def parse(text: str) -> tuple[str, ...] | None:
        items = [item.strip() for item in text.split(",")]
        return tuple(items) if all(map(parse_item, items)) else None

    return _setting(default, parse, allowed, required)


def secret(form: str = VISIBLE, allowed: str = VISIBLE_TEXT, *, required: bool = False) -> Any:
    """Declare a setting whose value is never printed."""
    return _setting("", _parser(form), allowed, required, is_secret=True)


def _parser(form: str) -> Callable[[str], str | None]:
    return lambda text: text if re.fullmatch(form, text) else None


def _setting(
    default: Any,
    parse: Callable[[str], Any],
    allowed: str,
    required: bool,
    *,
    is_secret: bool = False,
) -> Any:
    metadata = {"parse": parse, "allowed": allowed, "required": required, "secret": is_secret}
    return field(default=default, repr=isinstance(default, int), metadata=metadata)


@dataclass(frozen=True)
class CoreSettings:
    """The settings of every agent: see docs/settings.md."""

    project_name: ClassVar[str]
    model: str = "offline"
    host: str = "127.0.0.1"
    port: int = integer(8080, 0, 65_535)
    session_capacity: int = integer(128, 1, 1_000_000)
    session_idle_seconds: int = integer(3600, 1, 31_536_000)
    session_queue: int = integer(8, 0, 10_000)
    max_turns: int = integer(64, 1, 100_000)
    history_messages: int = integer(40, 1, 100_000)
    history_chars: int = integer(400_000, 1000, 1_000_000_000)
    prompt_cache: int = integer(1, 0, 1)
    reasoning: bool = boolean(True)
    max_steps: int = integer(10, 1, 1_000)
    max_tool_calls: int = integer(64, 1, 10_000)
    max_tools_at_once: int = integer(16, 1, 1_000)
    max_result_chars: int = integer(200_000, 1_000, 100_000_000)
    turn_timeout_seconds: int = integer(300, 1, 86_400)
    max_prompt_chars: int = integer(100_000, 1, 100_000_000)
    max_files: int = integer(8, 0, 1_000)
    max_file_bytes: int = integer(4_500_000, 1, 1_000_000_000)
    file_hosts: tuple[str, ...] = string_list(
        FILE_HOST_FORM, "a list like files.example.com,127.0.0.1:9000"
    )
    max_body_bytes: int = integer(6_291_456, 1, 1_000_000_000)
    request_timeout_seconds: int = integer(30, 1, 86_400)
    keep_alive_seconds: int = integer(15, 1, 86_400)
    max_reply_bytes: int = integer(1_048_576, 1, 1_000_000_000)
    max_snapshot_bytes: int = integer(8_388_608, 1024, 1_000_000_000)
    shutdown_grace_seconds: int = integer(8, 0, 86_400)
    allowed_hosts: str = string(
        f"{HOST_FORM}( *, *{HOST_FORM})*", "a list like agent.example.com,10.0.0.5:80"
    )
    allowed_origins: str = string(
        f"https?://{HOST_FORM}( *, *https?://{HOST_FORM})*", "a list like https://www.example.com"
    )
    log_format: str = string("text|json", "text or json", "text")
    api_token: str = secret()

    @classmethod
    def read(cls) -> tuple[Self, list[Finding]]:
        """Read the environment and .env; return settings and findings.

        A blank value counts as unset.
        """
        values: dict[str, Any] = {}
        findings = read_env_file()
        for setting in fields(cls):
            name = setting.name.upper()
            declared = setting.metadata
            text = os.environ.get(name, "").strip()
            if not text:
                if declared.get("required"):
                    message = f"{name} is not set: use {declared['allowed']}."
                    findings.append(diagnostic(f"SET-{name}", message))
                continue
            if not declared and setting.type not in {str, "str"}:
                message = f"{setting.name} is not declared: use integer(10, 0, 100), for example."
                findings.append(diagnostic(f"SET-{name}", message))
                continue
            value = declared["parse"](text) if declared else text
            if value is not None:
                values[setting.name] = value
                continue
            is_secret = declared["secret"] or re.search(SECRET, name)
            shown = "invalid" if is_secret else repr(without_password(text)[:80])
            message = f"{name} is {shown}: use {declared['allowed']}."
            findings.append(diagnostic(f"SET-{name}", message))
        return cls(**values), findings

    @cached_property
    def is_loopback(self) -> bool:
        """Whether only local programs can reach the server."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


def is_plain_http(url: str) -> bool:
    """Whether requests to this URL reach another host without encryption."""
    this_machine = r"([^/?#]*@)?(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?([/?#]|$)"
    return re.match(f"http://(?!{this_machine})", url, re.IGNORECASE) is not None


def without_password(url: str) -> str:
    """Return a URL, or a list of URLs, without user names, passwords and queries."""
    without_user = re.sub(r"(?<![^,\s])((?:\w[\w+.-]*://)?)[^,\s]*@", r"\1", url)
    return re.sub(r"\?[^,\s]*", "", without_user)


def read_env_file() -> list[Finding]:
    """Set the missing environment variables from .env; return findings about the file."""
    path = Path(".env")
    findings = list[Finding]()
    variables = dict[str, str]()
    try:
        text = path.read_text("utf-8-sig") if path.exists() else ""
    except (OSError, ValueError) as error:
        return [diagnostic("SET-ENV-FILE", f"Cannot read the file .env: {error}.")]
    for binding in parse_stream(StringIO(text)):
        if binding.key and binding.value is not None:
            variables[binding.key] = binding.value
        elif binding.error or binding.key:
            blank = re.match(r"\s*", binding.original.string)
            line = binding.original.line + (blank[0].count("\n") if blank else 0)
            message = "This line has no effect: write NAME=value."  # does not quote a secret
            findings.append(diagnostic("SET-ENV-LINE", message, "warning", ".env", line))
    for name, value in variables.items():
        try:
            os.environ.setdefault(name, value)
        except ValueError as error:  # a name with `=`, or a null byte
            findings.append(diagnostic("SET-ENV-FILE", f"Cannot use the file .env: {error}."))
    return findings


def proxy_variables() -> str:
    """Return the names of the proxy variables that are set."""
    names = (name for name, value in os.environ.items() if value)
    proxies = {"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"}
    return ", ".join(sorted(name for name in names if name.upper() in proxies))


def read_settings() -> tuple[CoreSettings, list[Finding]]:
    """Read the core settings: see `CoreSettings.read`."""
    return CoreSettings.read()
