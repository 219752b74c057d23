"""Files by URL: fetches them, only from the hosts in FILE_HOSTS."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from ssl import SSLContext
from typing import TYPE_CHECKING, Any

from .contract import AgentError, File, FileUrl
from .deadline import time_limit
from .files import TEXT_TYPES, find_type, plain_type, too_large
from .log import describe
from .settings import CoreSettings

if TYPE_CHECKING:  # importing httpx2 takes 0.1 s
    import httpcore2
    import httpx2

FETCH_SECONDS = 30
CONNECT_SECONDS = 5  # for each address of a host
MAX_REDIRECTS = 3
REDIRECTS = {301, 302, 303, 307, 308}
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "agent"}
# Without user, fragment, backslash, white space, and escapes in the host.
URL_FORM = r"https?://[^\x00- \x7f\ud800-\udfff\\/?#@%]+([/?][^\x00- \x7f\ud800-\udfff\\#]*)?"
INVALID = "send an https URL without user name and fragment."
NOT_LISTED = "set FILE_HOSTS to allow this host."
# Addresses of this machine, and of services that return a machine's credentials.
LOCAL_NETWORKS = (
    "0.0.0.0/8",
    "100.100.100.200/32",  # Alibaba Cloud
    "127.0.0.0/8",
    "168.63.129.16/32",  # Azure
    "169.254.0.0/16",
    "224.0.0.0/3",  # multicast, reserved and broadcast
)
REFUSED_NETWORKS = [
    ip_network(network)
    for network in (
        *LOCAL_NETWORKS,
        "::/96",
        "2002::/16",  # contains IPv4 addresses
        "fd00:ec2::/32",  # AWS
        "fe80::/10",
        "ff00::/8",
    )
]
# A translator (NAT64) sends packets for these addresses to the IPv4 addresses in their last bits.
TRANSLATED = ip_network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class _NotFetchedError(Exception):
    """The reason, for the caller; the cause is for the log."""


def check_urls(files: Sequence[File], settings: CoreSettings) -> None:
    """Check the URLs of a prompt's files, without a request. Raises `invalid_request`."""
    for index, file in enumerate(files):
        if isinstance(file, FileUrl):
            try:
                _parse(file.url, settings.file_hosts)
            except _NotFetchedError as reason:
                raise _error(index, reason) from None


async def fetch_files(
    files: Sequence[File], settings: CoreSettings, check_size: Callable[[int], None]
) -> Sequence[File]:
    """Return the files with their data; fetch all URLs at the same time.

    `check_size` is called with the number of bytes of all files so far. Raises its errors, and
    AgentError: `invalid_request` for a file that cannot be fetched, or `payload_too_large`.
    """
    total = sum(len(file.data) for file in files)

    async def fetch(index: int, file: File) -> File:
        def count(size: int) -> None:
            nonlocal total
            total += size
            check_size(total)

        if not isinstance(file, FileUrl):
            return file
        try:
            return await _fetch(file, settings, count)
        except _NotFetchedError as reason:
            raise _error(index, reason) from reason.__cause__

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(*item)) for item in enumerate(files)]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _error(index: int, reason: _NotFetchedError) -> AgentError:
    detail = describe(reason.__cause__) if reason.__cause__ else ""
    return AgentError("invalid_request", f"files[{index}].url: {reason}", detail)


async def _fetch(file: FileUrl, settings: CoreSettings, count: Callable[[int], None]) -> File:
    try:
        async with time_limit(FETCH_SECONDS) as limit:
            data, declared_type = await _download(file, settings, count)
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"the host did not send the file within {FETCH_SECONDS} seconds."
        raise _NotFetchedError(message) from None
    media_type = file.media_type or find_type(data) or "application/octet-stream"
    if not file.media_type and media_type == "text/plain" and declared_type in TEXT_TYPES:
        media_type = declared_type
    return File(media_type, data, file.name)


async def _download(
    file: FileUrl, settings: CoreSettings, count: Callable[[int], None]
) -> tuple[bytes, str]:
    """Return the data and the media type that the host declares."""
    import httpcore2
    import httpx2

    url = _parse(file.url, settings.file_hosts)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            async with _get(url) as response:
                headers = httpx2.Headers(response.headers)
                location = headers.get("Location", "")
                if response.status not in REDIRECTS or not location:
                    data = await _read(response, headers, file, settings, count)
                    return data, plain_type(headers.get("Content-Type", ""))
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
            OSError,
            UnicodeError,
        ) as error:
            raise _NotFetchedError("the host did not send the file.") from error
        try:
            url = _parse(str(url.join(location)), settings.file_hosts)
        except (_NotFetchedError, httpx2.InvalidURL, ValueError):
            message = "the host redirects to a URL that FILE_HOSTS does not allow."
            raise _NotFetchedError(message) from None
    raise _NotFetchedError(f"the host redirects more than {MAX_REDIRECTS} times.")


async def _read(
    response: "httpcore2.Response",
    headers: "httpx2.Headers",
    file: FileUrl,
    settings: CoreSettings,
    count: Callable[[int], None],
) -> bytes:
    if response.status != 200:
        raise _NotFetchedError(f"the host answered with HTTP {response.status}.")
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _NotFetchedError("the host sent a compressed file.")
    length = headers.get("Content-Length", "")
    if re.fullmatch("[0-9]{1,15}", length) and int(length) > settings.max_file_bytes:
        raise too_large(file.label, settings)
    data = bytearray()
    async for chunk in response.aiter_stream():
        if len(data) + len(chunk) > settings.max_file_bytes:
            raise too_large(file.label, settings)
        count(len(chunk))
        data += chunk
    return bytes(data)


@asynccontextmanager
async def _get(url: "httpx2.URL") -> AsyncIterator["httpcore2.Response"]:
    """Send a request without a proxy.

    Instrumentations of httpx2 would record the URL in spans, so this uses the layer below.
    """
    import httpcore2

    class Network(httpcore2.AnyIOBackend):
        """Connects to checked addresses only."""

        async def connect_tcp(
            self, host: str, port: int, *arguments: Any, **options: Any
        ) -> httpcore2.AsyncNetworkStream:
            addresses = await _resolve(url)
            for address in addresses[:-1]:
                with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                    return await super().connect_tcp(str(address), port, *arguments, **options)
            return await super().connect_tcp(str(addresses[-1]), port, *arguments, **options)

    raw_url = httpcore2.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    headers = [("Host", url.netloc.decode("ascii")), *HEADERS.items()]
    timeout = {"connect": CONNECT_SECONDS}
    async with (
        httpcore2.AsyncConnectionPool(_ssl_context(), network_backend=Network()) as pool,
        pool.stream("GET", raw_url, headers=headers, extensions={"timeout": timeout}) as response,
    ):
        yield response


@cache
def _ssl_context() -> SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


async def _resolve(url: "httpx2.URL") -> list[Address]:
    """Return the addresses of the host; at least one."""
    if address := _address_of(url):
        return [address]
    host = _host_of(url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [ip_address(where[0]) for *_, where in found]
    if host == "localhost":
        is_allowed = all(address.is_loopback for address in addresses)
    else:
        is_allowed = not any(map(_is_refused, addresses))
    if not is_allowed:
        raise _NotFetchedError("the agent must not connect to the address of this host.")
    return addresses


def _is_refused(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        if address in TRANSLATED:
            address = IPv4Address(int(address) & 0xFFFFFFFF)
        address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in REFUSED_NETWORKS)


def _parse(text: str, hosts: Sequence[str]) -> "httpx2.URL":
    """Return a URL that FILE_HOSTS allows. Only hosts on this machine may use http."""
    import httpx2

    if not re.fullmatch(URL_FORM, text, re.IGNORECASE):
        raise _NotFetchedError(INVALID)
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        raise _NotFetchedError(INVALID) from None
    if not any(_allows(entry, url) for entry in hosts):
        raise _NotFetchedError(NOT_LISTED)
    address = _address_of(url)
    is_local = address.is_loopback if address else url.host == "localhost"
    if url.scheme == "http" and not is_local:
        raise _NotFetchedError(INVALID)
    return url


def _allows(entry: str, url: "httpx2.URL") -> bool:
    """Whether an entry of FILE_HOSTS is the host and port of a URL; ports have a default."""
    import httpx2

    name, _, port = entry.rpartition(":")
    if not port.isdigit():  # no port, or the end of an IPv6 address
        name = entry
        port = ""
    try:
        listed = httpx2.URL(f"https://{name}")
    except (httpx2.InvalidURL, ValueError):
        return False
    default = {"http": 80, "https": 443}[url.scheme]
    has_port = (url.port or default) == int(port or default)
    return has_port and _host_of(listed) == _host_of(url)


def _host_of(url: "httpx2.URL") -> str:
    """Return the host in its normal form: an address, or a name in ASCII and lower case."""
    return str(_address_of(url) or url.raw_host.decode("ascii"))


def _address_of(url: "httpx2.URL") -> Address | None:
    try:
        return ip_address(url.host)
    except ValueError:
        return None
