"""Sessions at your own endpoint: the `custom` backend of the memory-collection specification.

The endpoint implements six operations, over REST or as a Lambda function. If it sends ETags, saves
are conditional: `If-Match` with the ETag of the last load, or `If-None-Match: *`. The endpoint
rejects a conflicting save with 412. tests/harness/reference_endpoint.py is a complete example.
"""

import asyncio
import base64
import json
import logging
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
)
from uuid_utils import uuid7

from ..collections.erasure import Stock
from ..collections.fields import SecretRef
from ..collections.models import Collection
from ..collections.secrets import SecretError, Secrets
from ..collections.session_backend import CustomConfig, RestTransport, resolve
from ..contract import well_formed
from ..deadline import time_limit
from ..log import describe
from ..sessions.session_store import Stored
from ..sessions.sessions import find_turns
from .base import (
    NO_FILES,
    UUID7,
    Conflict,
    Files,
    StoreUnavailable,
    StoreWarning,
    Unsupported,
    read_limit,
    segment_of,
)
from .settings import StoreSettings
from .snapshot import parse

log = logging.getLogger(__name__)
LATEST = "latest"
PAGE = 1000
MAX_PAGES = 100
ETAG = "(?![*]$)[!-~]{1,256}"
UNREADABLE = object()  # stands for a stored snapshot that is not JSON
UNSENT = httpx.ConnectError | httpx.ConnectTimeout
ROUTES = {
    "save_snapshot": ("POST", "/snapshots"),
    "load_snapshot": ("GET", "/snapshots"),
    "list_snapshot_ids": ("GET", "/snapshots/list"),
    "delete_session": ("DELETE", "/sessions/"),
    "save_manifest": ("POST", "/manifests"),
    "load_manifest": ("GET", "/manifests"),
}
NO_ETAG = "%s sends no ETag: when two processes continue a session, the last save wins"
NO_LIST = "The contract of a custom backend has no operation that lists sessions."
# The specification documents these fields; an endpoint may drop all other fields.
FIELDS = {"schema_version", "created_at"}
DATA_FIELDS = {"messages", "state", "system_prompt"}
# The key in `data.state` for undocumented fields. No agent uses this key.
RECORD = "_agent_template_session"
FILE = "file_base64"  # the key in `data.state` of a file's snapshot
NOT_MARKED = "the endpoint did not store the marker of a quarantined snapshot in `data.state`"


class EndpointStore:
    """A DurableStore of the agent's snapshots at an endpoint; ETags are the revisions.

    A quarantined snapshot moves to the scope `<agent_id>.set-aside`; agent ids have no dot. A
    marker replaces it as the latest snapshot. A file is the latest snapshot of the scope
    `<agent_id>.file-<name>`, in base64 in its state. The contract cannot delete a single snapshot:
    an empty snapshot replaces a file that no turn refers to.
    """

    def __init__(
        self, collection: Collection, agent_id: str, settings: StoreSettings, secrets: Secrets
    ) -> None:
        config = cast(CustomConfig, collection.backend)
        self._endpoint = EndpointClient(config, settings, secrets)
        self._agent = agent_id
        self._quarantine_scope = f"{agent_id}.set-aside"
        self._has_etags = True
        self._has_warned = False

    @property
    def contact(self) -> str:
        return self._endpoint.contact

    async def load(self, session_id: str, known: Stored | None = None) -> Stored | None:
        etag = known.revision if known else None
        answer = await self._endpoint.load_snapshot(session_id, self._agent, LATEST, etag)
        if answer.status == 304 or (etag and etag == answer.etag):
            return known
        if answer.value is not None:
            self._check_etag(answer.etag)
        manifest = None
        if known is None and isinstance(answer.value, dict) and not _is_marker(answer.value):
            manifest = await self._endpoint.load_manifest(session_id, self._agent)
        snapshot = _snapshot_in(answer, manifest)
        return None if snapshot is None else Stored(answer.etag, snapshot)

    async def save(
        self,
        session_id: str,
        snapshot: bytes,
        expected: str | None,
        checkpoint: str | None = None,
        files: Files = NO_FILES,
    ) -> str | None:
        for name, content in files.items():
            await self._save_file(session_id, name, content)
        wire = _to_wire(snapshot)
        try:
            revision = await self._replace(session_id, wire, expected)
        except Conflict:
            latest = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
            if expected or latest.etag is None or not _is_marker(latest.value):
                raise
            revision = await self._replace(session_id, wire, latest.etag)
        try:
            await self._endpoint.save_manifest(session_id, self._agent)
        except StoreUnavailable as error:  # the turn is committed anyway
            log.warning("session %s: the manifest was not saved: %s", session_id, error)
        if checkpoint:
            await self.save_checkpoint(session_id, snapshot, checkpoint)
        return revision

    async def save_checkpoint(self, session_id: str, snapshot: bytes, checkpoint: str) -> None:
        wire = _to_wire(snapshot)
        try:
            await self._endpoint.save_snapshot(session_id, self._agent, checkpoint, wire)
        except (Conflict, StoreUnavailable) as error:
            log.warning("session %s: the checkpoint was not saved: %s", session_id, error)

    async def load_checkpoint(self, session_id: str, checkpoint: str) -> bytes | None:
        return _snapshot_in(await self._endpoint.load_snapshot(session_id, self._agent, checkpoint))

    async def checkpoints(self, session_id: str) -> list[str]:
        return await self._endpoint.snapshot_ids(session_id, self._agent)

    async def load_files(self, session_id: str, names: Sequence[str]) -> Files:
        files = dict[str, bytes]()

        async def load(name: str) -> None:
            answer = await self._endpoint.load_snapshot(session_id, self._scope_of(name), LATEST)
            content = _state_of(answer.value).get(FILE)
            if isinstance(content, str):
                with suppress(ValueError):  # a damaged file counts as lost
                    files[name] = base64.b64decode(content, validate=True)

        await asyncio.gather(*map(load, names))
        return files

    async def trim_files(self, session_id: str, dropped: Sequence[str] = ()) -> None:
        try:
            if not dropped or await self.checkpoints(session_id):  # which may refer to the files
                return
            latest = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
            for name in dropped if latest.value is not None else ():
                if name.encode() not in latest.raw:
                    await self._save_file(session_id, name, b"")
        except (Conflict, StoreUnavailable) as error:
            log.warning("session %s: old files were not deleted: %s", session_id, error)

    async def quarantine(self, session_id: str, revision: str | None) -> str:
        latest = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
        if latest.value is None or latest.etag != revision:
            raise Conflict
        name = await self._save_quarantined(session_id, _quarantine_state(latest.raw))
        marker_etag = await self._replace(session_id, _marker(name), revision)
        latest = await self._endpoint.load_snapshot(session_id, self._agent, LATEST)
        # Another ETag belongs to a new session that another process has started.
        is_new = marker_etag is not None and latest.etag not in {None, marker_etag, revision}
        if latest.value is not None and not _is_marker(latest.value) and not is_new:
            raise StoreUnavailable(NOT_MARKED)
        return name

    async def quarantined(self, session_id: str) -> list[str]:
        return await self._endpoint.snapshot_ids(session_id, self._quarantine_scope)

    async def sessions(self) -> list[str]:
        raise Unsupported(NO_LIST)

    async def end(self, session_id: str) -> None:
        await self._endpoint.delete_session(session_id)

    def leftovers(self) -> list[Stock]:
        return []

    async def warnings(self) -> list[StoreWarning]:
        return []

    async def close(self) -> None:
        await self._endpoint.close()

    def _scope_of(self, name: str) -> str:
        return f"{self._agent}.file-{name}"

    async def _save_file(self, session_id: str, name: str, content: bytes) -> None:
        wire = _wire({"state": {FILE: base64.b64encode(content).decode()} if content else {}})
        await self._endpoint.save_snapshot(session_id, self._scope_of(name), LATEST, wire)

    async def _save_quarantined(self, session_id: str, state: dict[str, Any]) -> str:
        """Save a quarantined snapshot, unless an earlier attempt saved it; return its name."""
        names = await self.quarantined(session_id)
        if names:
            last = await self._endpoint.load_snapshot(session_id, self._quarantine_scope, names[-1])
            if _state_of(last.value) == state:
                return names[-1]
        name = str(uuid7())
        snapshot = _wire({"state": state})
        await self._endpoint.save_snapshot(session_id, self._quarantine_scope, name, snapshot)
        return name

    async def _replace(self, session_id: str, wire: Any, expected: str | None) -> str | None:
        # Without ETags the condition would always fail.
        if_none_match = "*" if expected is None and self._has_etags else None
        return await self._endpoint.save_snapshot(
            session_id, self._agent, LATEST, wire, expected, if_none_match
        )

    def _check_etag(self, etag: str | None) -> None:
        self._has_etags = etag is not None
        if not self._has_etags and not self._has_warned:
            self._has_warned = True
            log.warning(NO_ETAG, self.contact)


@dataclass(frozen=True)
class Answer:
    """A parsed response with status 2xx, 304, 404, 409 or 412."""

    status: int
    value: Any = None  # the JSON value; UNREADABLE for a stored snapshot that is not JSON
    etag: str | None = None
    raw: bytes = b"null"


class EndpointClient:
    """The six operations of the contract, with retries.

    Methods raise StoreUnavailable, also for a response that violates the contract.
    """

    def __init__(self, config: CustomConfig, settings: StoreSettings, secrets: Secrets) -> None:
        if config.transport is None:
            raise ValueError("the collection has no transport")
        self._transport = config.transport
        self._secrets = secrets
        self._seconds = config.transport.timeout_ms / 1000
        self._max_bytes = read_limit(settings.max_snapshot_bytes)
        self._http: httpx.AsyncClient | None = None
        declared = next(iter(config.transport.addresses().values()))
        self._address = resolve(declared)
        if not isinstance(config.transport, RestTransport):
            self.contact = f"Lambda function {self._address or declared}"
        elif url := _service_url(self._address):
            self.contact = f"{url.scheme}://{url.netloc.decode()}"
        else:
            self.contact = f"the address {declared}"

    async def save_snapshot(
        self,
        session_id: str,
        scope_id: str,
        snapshot_id: str,
        snapshot: dict[str, Any],
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> str | None:
        """Save the latest snapshot, or a checkpoint under a UUIDv7; return its ETag.

        Raises Conflict.
        """
        is_latest = snapshot_id == LATEST
        request = _request("save_snapshot", session_id, scope_id) | {
            "snapshot_id": snapshot_id,
            "is_latest": is_latest,
            "snapshot": snapshot,
        }
        answer = await self._call(request, if_match, if_none_match)
        if answer.status == 412:
            raise Conflict
        if is_latest or answer.status != 409:  # 409: an earlier attempt saved the checkpoint
            self._expect_ok(request, answer)
        return answer.etag

    async def load_snapshot(
        self, session_id: str, scope_id: str, snapshot_id: str, if_none_match: str | None = None
    ) -> Answer:
        """Return an answer with an object, UNREADABLE or None; status 304 if the ETag matches."""
        request = _request("load_snapshot", session_id, scope_id) | {"snapshot_id": snapshot_id}
        answer = await self._call(request, if_none_match=if_none_match)
        if answer.status == 304 and if_none_match:
            return answer
        return self._expect_object(request, answer)

    async def snapshot_ids(self, session_id: str, scope_id: str) -> list[str]:
        """Return the ids of all checkpoints, ascending."""
        ids: list[str] = []
        for _ in range(MAX_PAGES):
            last = ids[-1] if ids else None
            request = _request("list_snapshot_ids", session_id, scope_id)
            request |= {"limit": PAGE, "start_after": last}
            answer = await self._call(request)
            page = answer.value.get("snapshot_ids") if isinstance(answer.value, dict) else None
            page = [] if answer.status == 404 else page
            is_list = isinstance(page, list) and all(re.fullmatch(UUID7, str(id)) for id in page)
            if page is None or not is_list or page != sorted(page):
                raise self._unexpected(request, answer, '{"snapshot_ids": [UUIDv7s, ascending]}')
            if not page or (last and page[0] <= last):  # the endpoint ignores start_after
                break
            ids += page
        return ids

    async def delete_session(self, session_id: str) -> None:
        """Delete all data of a session. Idempotent."""
        request = {"operation": "delete_session", "session_id": session_id}
        answer = await self._call(request)
        if answer.status != 404:
            self._expect_ok(request, answer)

    async def save_manifest(self, session_id: str, scope_id: str) -> None:
        """Save the manifest: the schema version of snapshots, and the time of the last commit."""
        manifest = {"schema_version": "1.0", "updated_at": now()}
        request = _request("save_manifest", session_id, scope_id) | {"manifest": manifest}
        self._expect_ok(request, await self._call(request))

    async def load_manifest(self, session_id: str, scope_id: str) -> Any:
        """Return the manifest, or None."""
        request = _request("load_manifest", session_id, scope_id)
        answer = self._expect_object(request, await self._call(request))
        return {} if answer.value is UNREADABLE else answer.value

    async def close(self) -> None:
        """Disconnect."""
        if self._http:
            await self._http.aclose()

    async def _call(
        self, request: dict[str, Any], if_match: str | None = None, if_none_match: str | None = None
    ) -> Answer:
        """Send a request, retried by the retry policy, within max_attempts * timeout_ms."""
        policy = self._transport.retry_policy
        time = asyncio.get_running_loop().time
        seconds = policy.max_attempts * self._seconds
        end = time() + seconds
        failures = list[_AttemptError]()

        async def attempt() -> Answer:
            try:
                async with time_limit(min(self._seconds, end - time())):
                    return await self._send(request, if_match, if_none_match)
            except TimeoutError:
                failures.append(_AttemptError(f"no answer within {self._seconds:g} s"))
            except SecretError as error:
                raise StoreUnavailable(str(error), indeterminate=False) from None
            except _AttemptError as failure:
                failures.append(failure)
            raise failures[-1]

        def is_transient(error: BaseException) -> bool:
            return isinstance(error, _AttemptError) and error.status in {None, *policy.on_status}

        def pause(state: RetryCallState) -> float:
            backoff = policy.backoff_ms / 1000 * 2.0 ** (state.attempt_number - 1)
            return max(backoff * random.uniform(0.5, 1), failures[-1].retry_after)

        stop = stop_after_attempt(policy.max_attempts) | stop_before_delay(seconds)
        retry = retry_if_exception(is_transient)
        try:
            return await AsyncRetrying(retry=retry, stop=stop, wait=pause, reraise=True)(attempt)
        except _AttemptError as last:
            message = f"{request['operation']} of {self.contact}: {last}, attempt {len(failures)}"
            indeterminate = any(failure.indeterminate for failure in failures)
            raise StoreUnavailable(message, indeterminate=indeterminate) from None

    async def _send(
        self,
        request: dict[str, Any],
        if_match: str | None,
        if_none_match: str | None,
        was_refused: bool = False,
    ) -> Answer:
        method, path = ROUTES[request["operation"]]
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        conditions = {"If-Match": if_match, "If-None-Match": if_none_match}
        headers |= {name: value for name, value in conditions.items() if value}
        options: dict[str, Any] = {"extensions": {"request": request}}  # the payload of a Lambda
        if method == "POST":
            options["content"] = well_formed(json.dumps(request, ensure_ascii=False)).encode()
            headers["Content-Type"] = "application/json"
        elif method == "DELETE":
            path += segment_of(request["session_id"])
        else:
            scope = request["scope"]
            query = request | {"scope_type": scope["type"], "scope_id": scope["scope_id"]}
            omitted = {"operation", "scope"} | {key for key in query if query[key] is None}
            options["params"] = {key: query[key] for key in query if key not in omitted}
        headers |= await self._authorization(was_refused)
        self._http = self._http or self._connect()
        may_be_rotated = self._transport.credentials.source == "aws_secrets_manager"
        try:
            async with self._http.stream(method, path, headers=headers, **options) as response:
                is_refused = may_be_rotated and response.status_code in {401, 403}
                if was_refused or not is_refused:
                    return _answer(response, await self._read(response))
        except httpx.HTTPStatusError as error:  # an error of AWS Lambda, not of the endpoint
            raise _attempt_error(error.response, str(error)) from None
        except httpx.HTTPError as error:
            raise _AttemptError(
                describe(error), indeterminate=not isinstance(error, UNSENT)
            ) from None
        return await self._send(request, if_match, if_none_match, was_refused=True)

    def _connect(self) -> httpx.AsyncClient:
        if not isinstance(self._transport, RestTransport):
            from .endpoint_lambda import LambdaFunction  # imports boto3

            function = LambdaFunction(self._address, self._seconds, self._max_bytes)
            return httpx.AsyncClient(transport=function, base_url="http://lambda", timeout=None)
        url = _service_url(self._address)
        if url is None:
            message = "base_url is not the http:// or https:// address of a service"
            raise StoreUnavailable(message, indeterminate=False)
        is_basic = self._transport.credentials.scheme == "none" and url.userinfo
        return httpx.AsyncClient(
            base_url=url.copy_with(userinfo=b""),
            auth=(url.username, url.password) if is_basic else None,
            timeout=None,  # `_call` sets the limit; redirects are off: they would leak credentials
        )

    async def _authorization(self, was_refused: bool) -> dict[str, str]:
        credentials = self._transport.credentials
        if credentials.scheme not in {"api-key", "bearer-token"}:
            return {}
        reference = f"env:{credentials.name}"
        if credentials.source != "env":
            reference = credentials.secret_id or ""
        ref = SecretRef(reference, credentials.key, credentials.region)
        value = (await self._secrets.get(ref, was_refused)).strip()
        if not re.fullmatch("[!-~]([ -~]*[!-~])?", value):
            raise SecretError(reference, "it has characters that a header cannot contain")
        if credentials.scheme == "bearer-token":
            return {"Authorization": f"Bearer {value}"}
        return {credentials.header or "": value}

    async def _read(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._max_bytes:
                raise _AttemptError(f"the response exceeds {self._max_bytes} bytes")
        return bytes(body)

    def _expect_ok(self, request: dict[str, Any], answer: Answer) -> None:
        value = answer.value
        if answer.status // 100 != 2 or not isinstance(value, dict) or value.get("ok") is not True:
            raise self._unexpected(request, answer, '{"ok": true}')

    def _expect_object(self, request: dict[str, Any], answer: Answer) -> Answer:
        if answer.status == 404:
            return replace(answer, value=None)
        is_known = answer.value is None or answer.value is UNREADABLE
        if answer.status // 100 != 2 or not (is_known or isinstance(answer.value, dict)):
            raise self._unexpected(request, answer, "an object or null")
        return answer

    def _unexpected(self, request: dict[str, Any], answer: Answer, wanted: str) -> StoreUnavailable:
        message = (
            f"{request['operation']} of {self.contact}: HTTP {answer.status}, expected {wanted}"
        )
        return StoreUnavailable(message, indeterminate=answer.status // 100 != 4)


def now() -> str:
    """Return the current time in the format of snapshots and manifests."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _AttemptError(StoreUnavailable):
    """A failed attempt: the status of its response, and the seconds to the next attempt."""

    def __init__(
        self,
        message: str,
        *,
        indeterminate: bool = True,
        status: int | None = None,
        retry_after: float = 0,
    ) -> None:
        super().__init__(message, indeterminate=indeterminate)
        self.status = status
        self.retry_after = retry_after


def _service_url(address: str) -> httpx.URL | None:
    """Return the http or https URL of a service, or None."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return None
    is_invalid = not url.host or url.query or url.fragment or (url.port or 80) > 65_535
    return None if is_invalid or url.scheme not in {"http", "https"} else url


def _attempt_error(response: httpx.Response, message: str) -> _AttemptError:
    status = response.status_code
    retry_after = response.headers.get("Retry-After", "")
    return _AttemptError(
        message,
        indeterminate=status // 100 != 4,
        status=status,
        retry_after=float(retry_after) if re.fullmatch("[0-9]{1,6}", retry_after) else 0,
    )


def _answer(response: httpx.Response, body: bytes) -> Answer:
    """Parse a response. Raises _AttemptError."""
    status = response.status_code
    headers = response.headers
    if status in {304, 404, 409, 412}:
        return Answer(status)
    if status // 100 != 2:
        raise _attempt_error(response, f"HTTP {status}")
    etag = headers.get("ETag") or None
    if etag and not re.fullmatch(ETAG, etag):
        raise _AttemptError("the ETag must have 1 to 256 visible characters and must not be *")
    value = _parse(body)
    if value is not None or body.strip() == b"null":
        return Answer(status, value, etag, body)
    # Without a length, a broken connection may have cut the body.
    is_whole = "Content-Length" in headers or "Transfer-Encoding" in headers
    if etag and body and is_whole and "json" in headers.get("Content-Type", ""):
        return Answer(status, UNREADABLE, etag, body)
    raise _AttemptError(f"HTTP {status}, but the body is not JSON")


def _request(operation: str, session_id: str, scope_id: str) -> dict[str, Any]:
    scope = {"type": "agent", "scope_id": scope_id}
    return {"operation": operation, "session_id": session_id, "scope": scope}


def _parse(text: bytes) -> Any:
    """Parse JSON, or return None. Restore integers: a database may return 1.0 for 1."""
    return parse(text, parse_float=_number)


def _number(digits: str) -> float:
    number = float(digits)
    is_integer = number.is_integer() and abs(number) < 2**53
    return int(number) if is_integer else number


def _to_wire(snapshot: bytes) -> dict[str, Any]:
    """Return a committed snapshot in the form of the contract.

    Undocumented fields are also copied into `data.state`, because an endpoint may drop them.
    Earlier releases read them only from their original place.
    """
    value: dict[str, Any] = json.loads(snapshot)
    data = value["data"]
    record = {name: value[name] for name in value if name not in {"data", *FIELDS}}
    record["data"] = {name: data[name] for name in data if name not in DATA_FIELDS}
    data["state"] = {**(data.get("state") or {}), RECORD: record}
    data.setdefault("system_prompt", None)
    return value


def _snapshot_in(answer: Answer, manifest: Any = None) -> bytes | None:
    """Return the committed snapshot; an unknown version in the manifest applies to the snapshot."""
    value = answer.value
    if value is None or value is UNREADABLE:
        return None if value is None else answer.raw
    if _is_marker(value):
        return None
    if isinstance(value.get("data"), dict):
        value = _with_record(value)
    if value.get("schema_version") == "1":
        value = {"app_data": _default_app_data(value)} | value
    version = "1.0" if manifest is None else manifest.get("schema_version")
    if version not in ("1", "1.0"):
        value["schema_version"] = f"{version} in its manifest"
    return well_formed(json.dumps(value, ensure_ascii=False)).encode()


def _default_app_data(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the `app_data` of another runtime, which does not count turns or name an actor."""
    turns = 1
    with suppress(LookupError, TypeError, AttributeError):  # the snapshot may be invalid
        turns = max(turns, len(find_turns(snapshot["data"])))
    return {"actor": None, "turn": turns, "key": None, "reply": "", "ownerless": True}


def _with_record(value: dict[str, Any]) -> dict[str, Any]:
    """Restore the fields that `_to_wire` copied into the state, if the endpoint dropped them."""
    # The agent's code provides the system prompt.
    data = {name: value["data"][name] for name in value["data"] if name != "system_prompt"}
    record = _record_in(value)
    if record is not None:
        data["state"] = {name: data["state"][name] for name in data["state"] if name != RECORD}
    app_data = value.get("app_data")
    if record is None or (app_data and app_data != record.get("app_data")):
        return value | {"data": data}  # an earlier release saved the snapshot
    present = {name: value[name] for name in value if value[name] is not None}
    others = record.get("data")
    if isinstance(others, dict):
        data = others | data
    return record | present | {"data": data}


def _record_in(value: Any) -> dict[str, Any] | None:
    record = _state_of(value).get(RECORD)
    return record if isinstance(record, dict) else None


def _state_of(value: Any) -> dict[str, Any]:
    """Return the `data.state` of a snapshot."""
    data = value.get("data") if isinstance(value, dict) else None
    state = data.get("state") if isinstance(data, dict) else None
    return state if isinstance(state, dict) else {}


def _quarantine_state(raw: bytes) -> dict[str, Any]:
    """Return the state of a snapshot that contains unreadable bytes."""
    try:
        return {"set_aside": raw.decode()}
    except UnicodeDecodeError:
        return {"set_aside_base64": base64.b64encode(raw).decode()}


def _marker(name: str) -> dict[str, Any]:
    """Return a snapshot that replaces a quarantined snapshot."""
    app_data = {"set_aside": name}  # the place that earlier releases read
    return _wire({"state": {RECORD: {"app_data": app_data}}}) | {"app_data": app_data}


def _wire(data: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot without messages."""
    data = {"messages": [], "system_prompt": None} | data
    return {"data": data, "schema_version": "1.0", "created_at": now(), "scope": "agent"}


def _is_marker(value: Any) -> bool:
    """Return whether a snapshot is a marker, or its data is empty."""
    if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
        return False
    record = _record_in(value)
    app_data = value.get("app_data")
    if not app_data and record is not None:
        app_data = record.get("app_data")
    if app_data:
        return isinstance(app_data, dict) and "set_aside" in app_data
    return not any(value["data"].values())
