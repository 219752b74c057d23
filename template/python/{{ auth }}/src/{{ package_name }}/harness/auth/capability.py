"""The capability that verifies tokens, binds requests to actors, and limits their use.

API_TOKEN, a secret of this process, replaces each verified token, because the server's own
checks accept only that secret, at every route that needs a token.
"""

import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import Any

import click
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..capability import Capability
from ..contract import ACTOR_HEADERS, TOKEN_HEADER, AgentError, Change, Turn
from ..echo_model import OfflineModel
from ..findings import Finding, diagnostic
from ..modules import LoadModules
from . import adapter
from .keys import IssuerUnavailable, Keys
from .limits import Limits
from .metering import Meter
from .settings import AuthSettings
from .token import InvalidToken, Tokens

log = logging.getLogger(__name__)
NAMES = [name.lower() for name in ACTOR_HEADERS]
REPLACED = {"authorization", TOKEN_HEADER.lower(), *NAMES}
UNSET = "AUTH_ISSUER is not set: with a model, `serve` needs it, or API_TOKEN."
ALONE = "Tokens of AUTH_ISSUER replace API_TOKEN: unset one of these settings."
NO_AUDIENCE = "AUTH_AUDIENCE is not set: tokens for other services would be accepted."


class Auth(Capability):
    """Accepts requests with a token of AUTH_ISSUER; routes that need no token stay open."""

    settings: AuthSettings

    def __init__(
        self, settings: AuthSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self.keys = Keys(settings)
        self.limits = Limits(settings)
        self.tokens = Tokens(settings, self.keys)
        self._problem = _problem(settings)
        if settings.auth_issuer:
            object.__setattr__(settings, "api_token", token_urlsafe())  # before anything reads it

    def check(self) -> list[Finding]:
        if self._problem:
            return [diagnostic("SET-AUTH_ISSUER", self._problem)]
        if self.settings.auth_issuer:
            return []
        return [diagnostic("SET-AUTH_ISSUER", UNSET, "warning")]

    async def ping(self) -> list[Finding]:
        try:
            if self.settings.auth_issuer:
                await self.keys.read()
        except IssuerUnavailable as error:
            message = f"The keys of AUTH_ISSUER cannot be read: {error}."
            return [diagnostic("SET-AUTH_ISSUER", message)]
        return []

    def describe(self, address: str) -> list[str]:
        issuer = self.settings.auth_issuer
        return [f"Callers: by tokens of {issuer}"] if issuer else []

    def wrap(self, app: ASGIApp) -> ASGIApp:
        settings = self.settings
        if not settings.auth_issuer:
            if settings.model != "offline" and not settings.api_token:
                raise click.ClickException(UNSET)
            return app

        async def bound(scope: Scope, receive: Receive, send: Send) -> None:
            await app(*await self._bind(scope, receive, send))

        return bound

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        if turn.actor:
            await self.limits.begin(turn.actor)
        yield

    async def ended(self, turn: Turn) -> None:
        """Count the tokens that tools added to the turn."""
        tokens = turn.charged.input_tokens + turn.charged.output_tokens
        if turn.actor and tokens and self.limits.has_tokens:
            await self.limits.spend(turn.actor, tokens, time.time())

    async def before_change(self, change: Change) -> None:
        if change.fork and change.actor:
            await self.limits.begin(change.actor)

    def wrap_model(self, model: Any, actor: str | None, turn: Turn | None) -> Any:
        if actor is None or not self.limits.has_tokens or type(model) is OfflineModel:
            return model
        return adapter.metered(model, Meter(self.limits, actor, turn))

    async def close(self) -> None:
        await self.keys.close()

    async def _bind(
        self, scope: Scope, receive: Receive, send: Send
    ) -> tuple[Scope, Receive, Send]:
        """Return the request with its actor and API_TOKEN, or with neither if it has no token.

        Raises AgentError.
        """
        if scope["type"] != "http":
            return scope, receive, send
        sent = Headers(scope=scope)
        identity_headers = dict[str, str]()
        tokens = [f"Bearer {token}" for token in sent.getlist(TOKEN_HEADER)]
        values = tokens or sent.getlist("authorization")
        match = re.fullmatch("(?i:bearer) +([!-~]+) *", values[0]) if len(values) == 1 else None
        try:
            if match:
                actor = await self.tokens.actor_of(match[1])
                identity_headers = {
                    "authorization": f"Bearer {self.settings.api_token}",
                    NAMES[0]: actor,
                }
        except InvalidToken as error:
            send = _challenging(send, str(error))
        except IssuerUnavailable:
            detail = "Tokens cannot be verified now; retry later."
            raise AgentError("server_busy", detail) from None
        actors = {value for name in NAMES for value in sent.getlist(name)}
        if identity_headers and not actors <= {identity_headers[NAMES[0]]}:
            log.warning("rejected a request: a header names a different actor than the token")
            detail = "A header names a different actor than the token."
            raise AgentError("session_forbidden", detail)
        headers = [pair for pair in sent.raw if pair[0].decode("latin-1") not in REPLACED]
        raw = [(name.encode(), value.encode()) for name, value in identity_headers.items()]
        return {**scope, "headers": [*headers, *raw]}, receive, send


def _problem(settings: AuthSettings) -> str:
    """Return the reason why the settings cannot work, or ""."""
    if not settings.auth_issuer:
        return ""
    if settings.api_token:
        return ALONE
    return "" if settings.auth_audience else NO_AUDIENCE


def _challenging(send: Send, reason: str) -> Send:
    """Add the reason for a rejected token to responses with status 401 (RFC 6750)."""
    description = f'error_description="The token is not accepted: {reason}."'

    async def send_challenge(event: Message) -> None:
        if event["type"] == "http.response.start" and event["status"] == 401:
            challenge = f'Bearer error="invalid_token", {description}'
            MutableHeaders(scope=event)["WWW-Authenticate"] = challenge
        await send(event)

    return send_challenge
