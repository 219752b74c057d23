"""Addresses at which others can read what is sent."""

import re

PLAIN_HTTP = re.compile(
    r"(?i)http://(?!([^/?#]*@)?(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?([/?#]|$))"
)


def is_plain_http(url: str) -> bool:
    """Whether a URL sends what it carries unencrypted to another host."""
    return PLAIN_HTTP.match(url) is not None
