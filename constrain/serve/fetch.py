"""Fetching of addresses that clients send, from public addresses only.

A server that fetches any address lets its clients reach what only it can: services of its own network, and the metadata
of its cloud. So every name is resolved here, all its addresses have to be public, and the connection goes to the one
that was checked, also after a redirect.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Timer
from time import monotonic
from urllib.parse import SplitResult, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_BLOCK = 1 << 16
#: Networks of IPv6 whose addresses have one of IPv4 inside: NAT64 (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380).
_EMBEDDING = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))


class FetchError(Exception):
    """Something is not fetched; the message says why."""


def fetch(url: str, max_bytes: int, timeout: float) -> bytes:
    """Return the content of an ``http:`` or ``https:`` address.

    Args:
        url: the address.
        max_bytes: most bytes of the content.
        timeout: most seconds, all redirects included.

    Raises:
        FetchError: the address is not public or cannot be read, or the content is too long.
    """
    deadline = monotonic() + timeout
    try:
        for _ in range(1 + _MAX_REDIRECTS):
            content, target = _get(urlsplit(url), max_bytes, deadline)
            if target is None:
                return content
            url = urljoin(url, target)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{url} cannot be fetched: {error}") from error
    raise FetchError(f"{url}: more than {_MAX_REDIRECTS} redirects")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address belongs to the public Internet, not to this network."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _EMBEDDING):
            return False
    return address.is_global and not address.is_multicast


def _get(url: SplitResult, max_bytes: int, deadline: float) -> tuple[bytes, str | None]:
    """Return the content of an address, or where it redirects to."""
    if url.scheme not in _PORTS or not url.hostname or url.username is not None:
        raise FetchError(f"{url.geturl()}: only http and https addresses without credentials are fetched")
    port = url.port or _PORTS[url.scheme]
    address = _checked(url.hostname, port)
    rest = max(0.1, deadline - monotonic())
    connection = _Pinned(url.hostname, port, address, rest, url.scheme == "https")
    # Limits of a socket are for each of its calls, and a server may answer byte by byte.
    watchdog = Timer(rest, connection.abort)
    watchdog.start()
    try:
        target = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("GET", target, headers={"Accept": "image/*", "Accept-Encoding": "identity"})
        response = connection.getresponse()
        if response.status in _REDIRECTS and response.headers["location"]:
            return b"", response.headers["location"]
        if response.status != http.client.OK:
            raise FetchError(f"{url.geturl()} answers with status {response.status}")
        content = _read(response, max_bytes)
        if connection.is_aborted:  # which may look like the end of the content
            raise TimeoutError("it took too long")
        return content, None
    finally:
        watchdog.cancel()
        connection.close()


def _checked(host: str, port: int) -> str:
    """Return an address of a host, all of whose addresses are public."""
    found = [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if not is_public(ip_address(str(address).partition("%")[0])):
            raise FetchError(f"{host} is not at a public address, and is not fetched")
    return str(found[0])


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    content = bytearray()
    while block := response.read1(_BLOCK):
        content += block
        if len(content) > max_bytes:
            raise FetchError(f"the content has more than {max_bytes:,} bytes; send a smaller one")
    if response.length:
        raise http.client.IncompleteRead(bytes(content), response.length)
    return bytes(content)


class _Pinned(http.client.HTTPConnection):
    """A connection to an address that was checked, for a host that is not resolved again."""

    def __init__(self, host: str, port: int, address: str, timeout: float, is_encrypted: bool) -> None:
        super().__init__(host, port, timeout)
        self.default_port = _PORTS["https" if is_encrypted else "http"]  # which the header Host leaves out
        self._address, self._is_encrypted, self.is_aborted = address, is_encrypted, False

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._is_encrypted:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)

    def abort(self) -> None:
        """End what waits for the server, from another thread."""
        self.is_aborted = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
