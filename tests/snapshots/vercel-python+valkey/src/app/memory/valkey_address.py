"""The address of a Valkey in a secret, and how an error names it without its password."""

import re
from urllib.parse import urlsplit

from .backends import Unavailable

HOST = r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"


def read_address(secret: str, reference: str, port: int) -> tuple[str, str]:
    """The URL that a secret is or, with this port, the host of; and its name in errors.

    Raises Unavailable when it is neither.
    """
    is_bare_ipv6 = re.fullmatch(r"[^\[/]*:.*:[^/]*", secret)
    host = f"[{secret}]" if is_bare_ipv6 else secret
    url = secret if "://" in secret else f"valkey://{host}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or port
        # After an @ further on would be the host, and what is taken for it a password.
        is_split = "@" in parts.path + parts.query + parts.fragment
        is_host = re.fullmatch(HOST, host, re.ASCII) and not is_split
        if not is_host or not re.match("(valkey|redis)s?://", url):
            raise ValueError
    except ValueError:
        what = f"secret {reference!r} is no address such as valkeys://user:p%40ss@host:6379"
        raise Unavailable(what, is_certain=True) from None
    if url != secret:  # it could be a password, by mistake
        return url, f"valkey of secret {reference!r}"
    return url, f"valkey at {f'[{host}]' if ':' in host else host}:{port}"
