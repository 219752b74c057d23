"""A custom backend over REST: an HTTP service with a path for each operation."""

import json
import re
from typing import Any

import httpx

from ..contract import describe, well_formed
from .access import RestApi
from .backends import Unavailable
from .causes import UNSENT, cause_of
from .options import Options
from .secrets import Secrets
from .transport import UNREADABLE, Answer, Transport, check_etag, parse, resolve

ROUTES = {
    "save_snapshot": ("POST", "/snapshots"),
    "load_snapshot": ("GET", "/snapshots"),
    "list_snapshot_ids": ("GET", "/snapshots/list"),
    "delete_session": ("DELETE", "/sessions/"),
    "save_manifest": ("POST", "/manifests"),
    "load_manifest": ("GET", "/manifests"),
}


class RestTransport(Transport):
    """An HTTP service. Redirects are not followed: they would take the credentials along."""

    def __init__(self, declared: RestApi, options: Options, secrets: Secrets | None) -> None:
        try:
            url = httpx.URL(resolve(declared.base_url))
        except httpx.InvalidURL:
            url = httpx.URL()
        is_wrong = not url.host or url.query or url.fragment or (url.port or 80) > 65_535
        if url.scheme not in {"http", "https"} or is_wrong:
            what = "base_url is no http:// or https:// address of a service"
            raise Unavailable(what, is_certain=True)
        super().__init__(declared, f"{url.scheme}://{url.netloc.decode()}")
        self._secrets, self._credentials = secrets, declared.credentials
        is_basic = secrets and declared.credentials.scheme == "none" and url.userinfo
        self._client = httpx.AsyncClient(
            base_url=url.copy_with(userinfo=b""),  # or exceptions would quote a password
            auth=(url.username, url.password) if is_basic else None,
            timeout=None,  # `call` has one
        )
        self._limit = 8 * options.max_snapshot_bytes

    async def _send(self, request: dict[str, Any], match: str | None, none: str | None) -> Answer:
        method, path = ROUTES[request["operation"]]
        sent: dict[str, Any] = {}
        if method == "POST":
            sent["content"] = well_formed(json.dumps(request, ensure_ascii=False)).encode()
        elif method == "DELETE":
            path += request["session_id"]  # of characters that a path may hold
        else:
            scope = request["scope"]
            query = request | {"scope_type": scope["type"], "scope_id": scope["scope_id"]}
            left_out = {"operation", "scope"} | {key for key in query if query[key] is None}
            sent["params"] = {key: query[key] for key in query if key not in left_out}
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        conditions = {"If-Match": match, "If-None-Match": none}
        headers |= {name: value for name, value in conditions.items() if value}
        headers |= {"Content-Type": "application/json"} if method == "POST" else {}
        headers |= await self._authorization()
        try:
            async with self._client.stream(method, path, headers=headers, **sent) as response:
                return _answer(response, await self._read(response))
        except httpx.HTTPError as error:
            why = cause_of(error) or describe(error)
            raise Unavailable(why, is_certain=why in UNSENT) from None

    async def _authorization(self) -> dict[str, str]:
        how = self._credentials
        if self._secrets is None or how.scheme == "none":
            return {}
        reference = f"env:{how.name}" if how.source == "env" else how.secret_id or ""
        value = (await self._secrets.get(reference, how.key, how.region)).strip()
        if not re.fullmatch("[!-~]([ -~]*[!-~])?", value):
            raise Unavailable("the credentials hold what no header can", is_certain=True)
        if how.scheme == "bearer-token":
            return {"Authorization": f"Bearer {value}"}
        return {how.header or "": value}

    async def _read(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._limit:
                raise Unavailable(f"an answer of more than {self._limit} bytes")
        return bytes(body)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _answer(response: httpx.Response, body: bytes) -> Answer:
    status, headers = response.status_code, response.headers
    retry_after = headers.get("Retry-After", "")
    pause = float(retry_after) if re.fullmatch("[0-9]{1,6}", retry_after) else 0
    if status // 100 != 2:
        why = cause_of(None, status)
        return Answer(status, retry_after=pause, failure=why and f"{why} (HTTP {status})")
    etag = check_etag(headers.get("ETag"))
    try:
        return Answer(status, parse(body), etag, body)
    except ValueError:
        # Without a length it may be the connection that was cut, and not what is stored.
        is_whole = "Content-Length" in headers or "Transfer-Encoding" in headers
        is_json = "json" in headers.get("Content-Type", "")
        if not (etag and body and is_whole and is_json):
            what = "with a body that is no JSON" if body else "without a body"
            raise Unavailable(f"HTTP {status} {what}") from None
        return Answer(status, UNREADABLE, etag, body)
