"""The settings of callers."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer, string

PUBLIC = r"https://[^\s/?#@]+(/[^\s?#]*)?"
LOOPBACK = r"http://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?(/[^\s?#]*)?"
QUERY = r"(\?[^\s#]*)?"
AUDIENCES = "|[ ,]*[^ ,].*"
NO_LIMIT = 1_000_000_000


@dataclass(frozen=True)
class AuthSettings(CoreSettings):
    """The accepted issuer and tokens, and the limits of an actor; 0 means no limit."""

    auth_issuer: str = string(f"{PUBLIC}|{LOOPBACK}", "an https address")
    auth_jwks_uri: str = string(f"({PUBLIC}|{LOOPBACK}){QUERY}", "an https address", "")
    auth_audience: str = string(AUDIENCES, "names with commas between them", "")
    auth_actor_claim: str = string("[!-~]{1,64}", "the name of a claim", "sub")
    actor_turns_per_minute: int = integer(0, 0, NO_LIMIT)
    actor_turns_per_day: int = integer(0, 0, NO_LIMIT)
    actor_tokens_per_minute: int = integer(0, 0, NO_LIMIT)
    actor_tokens_per_day: int = integer(0, 0, NO_LIMIT)
