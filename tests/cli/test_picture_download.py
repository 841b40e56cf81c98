"""Pictures from the web: small, soon, and never from where only this machine can reach."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from mlxchat.cli import picture_download
from mlxchat.cli.picture_download import download, is_public, is_url
from mlxchat.errors import DataError, InputError, UsageError
from support.picture_files import PictureServer, page, png, redirect

pytestmark = pytest.mark.plain


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A body that never ends, a byte at a time."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.02)


def pages(port_of_other: int = 0) -> dict[str, Any]:
    return {
        "/a.png": page(png()),
        "/ä b.png": page(png()),
        "/large": page(bytes(30_000)),
        "/once": redirect("/a.png"),
        "/round": redirect("/round"),
        "/inside": redirect("http://127.0.0.2:9/secret"),
        "/named": redirect("http://localhost:9/secret"),
        "/file": redirect("file:///etc/passwd"),
        "/gone": page(b"", 410),
        "/drip": drip,
    }


@pytest.fixture
def server() -> Iterator[PictureServer]:
    with PictureServer(pages() | {"/%C3%A4%20b.png": page(png())}).running() as server:
        yield server


def here(address: str) -> bool:
    """The seam: this one address counts as public."""
    return address == "127.0.0.1"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "64:ff9b::a00:1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::",
        "2001:db8::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "nonsense",
    ],
)
def test_addresses_inside(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::"])
def test_addresses_of_everybody(address: str) -> None:
    assert is_public(address)


def test_what_a_url_is() -> None:
    assert is_url("https://a.b/c.png")
    assert is_url("HTTP://a.b")
    assert not any(is_url(other) for other in ("a.png", "file:///a.png", "data:image/png;base64,", "ftp://a.b/c"))


def test_a_picture_comes(server: PictureServer) -> None:
    assert download(f"{server.url}/a.png", allowed=here) == png()
    assert download(f"{server.url}/once", allowed=here) == png()
    assert download(f"{server.url}/ä b.png", allowed=here) == png()
    assert server.headers[0]["User-Agent"] == "mlxchat"
    assert server.headers[0]["Host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1"])
def test_this_machine_is_refused_under_any_name(server: PictureServer, host: str) -> None:
    with pytest.raises(InputError, match="not on the public internet") as caught:
        download(f"http://{host}:{server.port}/a.png")
    assert caught.value.exit_code == 66
    assert server.asked == []


@pytest.mark.parametrize("path", ["/inside", "/named"])
def test_so_is_where_it_redirects_to(server: PictureServer, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 9))]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: elsewhere if host == "localhost" else real(host, *a, **k)
    )
    with pytest.raises(InputError, match=r"leads to (127\.0\.0\.2|10\.0\.0\.7), which is not on the public internet"):
        download(f"{server.url}{path}", allowed=here)


def test_a_redirect_that_is_not_checked_would_get_there(server: PictureServer) -> None:
    """The fault: every address counts as public. The same redirect then opens a connection."""
    with pytest.raises(InputError, match=r"can't fetch http://127\.0\.0\.2:9/secret: Connection refused"):
        download(f"{server.url}/inside", allowed=lambda address: True)


def test_it_connects_to_the_address_that_was_checked(server: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to something else the second time: there is no second time."""
    answers = ["127.0.0.1", "127.0.0.2"]
    asked: list[str] = []

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if host[0].isdigit():  # the checked address, on its way to the socket
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert download(f"http://rebinds.example:{server.port}/a.png", allowed=here) == png()
    assert asked == ["rebinds.example"]
    assert server.headers[0]["Host"] == f"rebinds.example:{server.port}"


def test_one_address_inside_is_enough_to_refuse(server: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, server.port)) for one in ("127.0.0.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(InputError, match=r"leads to 10\.0\.0\.1"):
        download(f"http://two.example:{server.port}/a.png", allowed=here)
    assert server.asked == []


def test_the_next_address_is_tried(server: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        found = [host] if host[0].isdigit() else ["127.0.0.3", "127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    url = f"http://two.example:{server.port}/a.png"
    assert download(url, allowed=lambda address: address.startswith("127.")) == png()


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/none", InputError, "answers 404 Not Found"),
        ("/gone", InputError, "answers 410 Gone"),
        ("/round", InputError, "redirects more than 5 times"),
        ("/file", InputError, "file:///etc/passwd is no web address"),
    ],
)
def test_what_does_not_come(server: PictureServer, path: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        download(f"{server.url}{path}", allowed=here)


@pytest.mark.parametrize("url", ["http://", "http:///a.png", "http://a:99999/", "http://[::1", "https://\0/"])
def test_odd_addresses(url: str) -> None:
    with pytest.raises(InputError):
        download(url)


def test_offline_asks_nobody(server: PictureServer) -> None:
    with pytest.raises(UsageError, match="--offline forbids"):
        download(f"{server.url}/a.png", offline=True, allowed=here)
    assert server.asked == []


def test_too_large(server: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_download, "MOST_BYTES", 20_000)
    with pytest.raises(DataError, match="is larger than"):
        download(f"{server.url}/large", allowed=here)


def test_too_slow(server: PictureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_download, "MOST_SECONDS", 0.2)
    with pytest.raises(InputError, match="took longer than"):
        download(f"{server.url}/drip", allowed=here)


def test_a_name_look_up_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: free.wait(10) and [])
    monkeypatch.setattr(picture_download, "MOST_SECONDS", -0.9)
    with pytest.raises(InputError, match="took longer than"):
        download("http://slow.example/a.png")
    free.set()


def test_tls_verifies_the_name(server: PictureServer) -> None:
    with pytest.raises(InputError, match="can't fetch https://"):
        download(f"https://127.0.0.1:{server.port}/a.png", allowed=here)
