"""A picture from the web: small, soon, and never from inside the network that this machine is in.

Whoever gives the URL, or whoever it redirects to, must not reach what only this machine can reach: its own services,
the home or company network, a cloud's metadata. So each hop's name is resolved once, every address it has is checked,
and the connection goes to a checked address; nothing is resolved a second time.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from ..errors import DataError, InputError, UsageError

MOST_BYTES = 20_000_000
MOST_SECONDS = 30.0
MOST_HOPS = 5
_SILENCE_S = 10.0
_CHUNK = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_SCHEMES = ("http", "https")
_SAFE = "/%:@!$&'()*+,;=~?[]|"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
_INSIDE = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
"""Kept for protocols, or a cloud's own services, at addresses that count as public."""

Allowed = Callable[[str], bool]


def is_public(address: str) -> bool:
    """Whether an IP address is one that anybody on the internet may ask."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    hidden = _hidden(found)
    if hidden is not None:
        return is_public(str(hidden))
    if isinstance(found, ipaddress.IPv6Address) and found not in _UNICAST:
        return False
    return found.is_global and not found.is_multicast and not any(found in network for network in _INSIDE)


def is_url(source: str) -> bool:
    """Whether `source` asks for the network."""
    return source.lower().startswith(tuple(f"{scheme}://" for scheme in _SCHEMES))


def download(url: str, offline: bool = False, allowed: Allowed = is_public) -> bytes:
    """The bytes at `url`, a few redirects followed.

    Raises UsageError with `offline`, InputError if it can't be had or an address isn't `allowed`, DataError if it has
    more than MOST_BYTES. It takes MOST_SECONDS at most, name look-ups included.
    """
    if offline:
        raise UsageError(f"--offline forbids fetching {url}", "save the picture, and give its path")
    return _within(MOST_SECONDS, lambda deadline: _follow(url, allowed, deadline), url)


def _within(seconds: float, work: Callable[[float], bytes], url: str) -> bytes:
    """The result of `work(deadline)`, on a thread of its own: a name look-up can't be given a time limit."""
    results: list[bytes | BaseException] = []

    def run() -> None:
        try:
            results.append(work(time.monotonic() + seconds))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, name="mlxchat-picture", daemon=True)
    thread.start()
    thread.join(seconds + 1)
    result = results[0] if results else _too_slow(url)
    if isinstance(result, BaseException):
        raise result
    return result


def _too_slow(url: str) -> InputError:
    return InputError(f"{url} took longer than {MOST_SECONDS:.0f} s", "save the picture, and give its path")


@dataclass(frozen=True)
class _Answer:
    """One hop: where it sends on, or the bytes."""

    location: str | None
    data: bytes = b""


def _follow(url: str, allowed: Allowed, deadline: float) -> bytes:
    here = url
    for _ in range(MOST_HOPS + 1):
        answer = _ask(here, allowed, deadline)
        if answer.location is None:
            return answer.data
        here = urljoin(here, answer.location)
    raise InputError(f"{url} redirects more than {MOST_HOPS} times", "give the address of the picture itself")


def _ask(url: str, allowed: Allowed, deadline: float) -> _Answer:
    parts, port = _parsed(url)
    host = parts.hostname or ""
    connection = _Connection(host, port, _checked_addresses(host, port, url, allowed), parts.scheme == "https")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", quote(target, safe=_SAFE), headers={"User-Agent": "mlxchat"})
        with connection.getresponse() as response:
            if response.status in _REDIRECTS and (location := response.getheader("Location")):
                return _Answer(location)
            if response.status != http.client.OK:
                raise InputError(f"{url} answers {response.status} {response.reason}".rstrip(), "check the address")
            return _Answer(None, _body(response, url, deadline))
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise InputError(f"can't fetch {url}: {_cause(error)}", "check the address and the network") from error
    finally:
        connection.close()


def _parsed(url: str) -> tuple[SplitResult, int]:
    """The URL's parts and its port. Raises InputError for what isn't http or https, or has no host."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InputError(f"{url} is no address: {error}", "give http://… or https://…") from error
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise InputError(f"{url} is no web address", "give http://… or https://…")
    return parts, port


def _checked_addresses(host: str, port: int, url: str, allowed: Allowed) -> list[str]:
    """The addresses of `host`. Raises InputError if it has none, or any that isn't allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"can't find {host}: {_cause(error)}", "check the address and the network") from error
    addresses = [str(entry[4][0]) for entry in found]
    refused = [address for address in addresses if not allowed(address)]
    if refused or not addresses:
        raise InputError(
            f"{url} leads to {refused[0] if refused else 'no address'}, which is not on the public internet",
            "save the picture, and give its path",
        )
    return addresses


class _Connection(http.client.HTTPConnection):
    """To the first of `addresses` that answers; it speaks to, and over TLS verifies, `host`."""

    def __init__(self, host: str, port: int, addresses: list[str], secure: bool) -> None:
        super().__init__(host, port, timeout=_SILENCE_S)
        self._addresses = addresses
        self._secure = secure
        if secure:
            self.default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        """Open the socket."""
        sock = self._open()
        if self._secure:
            import truststore

            sock = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(sock, server_hostname=self.host)
        self.sock = sock

    def _open(self) -> socket.socket:
        for address in self._addresses[:-1]:
            try:
                return socket.create_connection((address, self.port), _SILENCE_S)
            except OSError:
                pass  # the next one may do
        return socket.create_connection((self._addresses[-1], self.port), _SILENCE_S)


def _body(response: http.client.HTTPResponse, url: str, deadline: float) -> bytes:
    data = bytearray()
    while chunk := response.read1(_CHUNK):
        data += chunk
        if len(data) > MOST_BYTES:
            raise DataError(f"{url} is larger than {MOST_BYTES // 1_000_000} MB", "save a smaller copy, and give it")
        if time.monotonic() > deadline:
            raise _too_slow(url)
    return bytes(data)


def _hidden(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for, if it does: mapped, 6to4, Teredo, NAT64."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
