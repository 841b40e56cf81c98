"""Pictures for tests, and a web server that has some."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

Colour = tuple[int, int, int]
RED: Colour = (255, 0, 0)
BLUE: Colour = (0, 0, 255)


def png(colour: Colour = RED, width: int = 4, height: int = 2) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, "PNG")
    return out.getvalue()


def png_file(path: Path, colour: Colour = RED, width: int = 4, height: int = 2) -> Path:
    path.write_bytes(png(colour, width, height))
    return path


Handle = Callable[[BaseHTTPRequestHandler], None]


class PictureServer:
    """A server on 127.0.0.1 whose pages are functions of the request. `asked` has the paths, in order."""

    def __init__(self, pages: dict[str, Handle], address: str = "127.0.0.1") -> None:
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.headers.append(dict(self.headers))
                with contextlib.suppress(OSError):  # whoever asked had enough
                    pages.get(self.path.partition("?")[0], missing)(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://{address}:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[PictureServer]:
        thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def page(data: bytes, status: int = 200, **headers: str) -> Handle:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def redirect(to: str) -> Handle:
    return page(b"", 302, Location=to)


def missing(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(404)
