"""A local web server for one page and, if needed, one stream of server-sent events. It listens on loopback only.

    authentication    The link contains a key that works once. It is exchanged for a cookie that is HttpOnly and
                      SameSite=Strict. Every request without the cookie is refused.
    origin            For every method, Host must be the address of the server, and Origin must be absent or the same.
    paths             Only the listed paths exist. No folder is served, so path traversal is impossible.
    methods           Only GET and HEAD are answered. Request bodies are refused.
    response headers  They forbid framing, MIME sniffing and caching.

The server closes connections whose request does not arrive in time. It does not support other addresses than loopback,
and does not serve files.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import StorageError

LOOPBACK = "127.0.0.1"
REQUEST_TIMEOUT = 10.0
"""Seconds within which a complete request must arrive on a connection."""
CONNECTIONS, STREAMS = 64, 8
"""Largest numbers of open connections and of open streams."""
LARGEST_HEAD = 16 * 1024
"""Largest size of the headers of a request, in bytes."""
POLL = 0.25
"""Seconds between two checks of a stream for a new report."""
HEARTBEAT = 15.0
"""Seconds without an event after which a stream sends a comment, to keep the connection open."""
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Feed:
    """The latest report for the streams of events, and whether it is the last one. Methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: str | None = None
        self._number = 0
        self._over = False

    def publish(self, data: str) -> None:
        """Replace the latest report. A slow client skips the reports between two of its reads."""
        with self._lock:
            self._latest, self._number = data, self._number + 1

    def end(self) -> None:
        """Mark the latest report as the last one."""
        with self._lock:
            self._over = True

    def since(self, number: int) -> tuple[int, str | None, bool]:
        """Return the number of the latest report, its data if it is newer than `number`, and whether it is the last."""
        with self._lock:
            return self._number, None if self._number == number else self._latest, self._over


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the server: a function that returns its text, and its media type."""

    make: Callable[[], str]
    kind: str = "text/html"


class Pages:
    """The ASGI application: checks each request and returns the page at its path."""

    def __init__(self, pages: Mapping[str, Page], *, port: int, feed: Feed | None = None) -> None:
        self.pages, self.feed = pages, feed
        self.key, self._secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.cookie = f"multilayer-{port}"  # browsers send a cookie to all ports of a host, so its name has the port
        self.hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        self.streams, self.listened = 0, 0
        self._used = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there is no start-up work, and a WebSocket that is not accepted is refused
        request = Request(scope, receive)
        response = self._answer(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        refusal = self._check_headers(request)
        if refusal is not None:
            return refusal
        name, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"]
        if name == "/" and query and request.method == "GET":
            if not self._has_cookie(request) and not self._use_key(request):
                return _refusal(403, "This link has been used or is incomplete. Run the command again.")
            return self._set_cookie()
        if not self._has_cookie(request):
            return _refusal(403, "Open the link that the command printed.")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "The method must be GET or HEAD.", {"Allow": "GET, HEAD"})
        if query:
            return _refusal(404, "There is no such page.")
        if name == "/events" and self.feed is not None:
            return self._stream(self.feed, head=request.method == "HEAD")
        if name not in self.pages:
            return _refusal(404, "There is no such page.")
        page = self.pages[name]
        text = page.make()
        found = _POLICY.search(text[:4000])
        policy = f"{found[1]}; frame-ancestors 'none'" if found else HEADERS["Content-Security-Policy"]
        return Response(text, media_type=page.kind, headers={"Content-Security-Policy": policy})

    # Authentication

    def _check_headers(self, request: Request) -> Response | None:
        """Return a refusal if the request comes from another site, is too large or has a body. Otherwise None."""
        headers = request.headers
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            return _refusal(431, f"The headers must have at most {LARGEST_HEAD:,} bytes.", {"Connection": "close"})
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return _refusal(403, "The Host header must be the address of this server.")
        if len(origins) > 1 or (origins and origins[0] != f"http://{hosts[0]}"):
            return _refusal(403, "Requests from other sites are refused.")
        sites = headers.getlist("sec-fetch-site")
        if any(site not in ("same-origin", "none") for site in sites):
            return _refusal(403, "Links from other sites are refused. Paste the link into the address bar.")
        if "transfer-encoding" in headers or any(n != "0" for n in headers.getlist("content-length")):
            return _refusal(413, "The request must not have a body.", {"Connection": "close"})
        return None

    def _has_cookie(self, request: Request) -> bool:
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self._secret.encode())

    def _use_key(self, request: Request) -> bool:
        """Use up the key of the link. Return whether the request has it and it was not used before."""
        given = request.query_params.getlist("key")
        right = len(given) == 1 and hmac.compare_digest(given[0].encode(), self.key.encode())
        if not right or self._used:
            return False
        self._used = True
        return True

    def _set_cookie(self) -> Response:
        response = Response(status_code=303, headers={"Location": "/"})
        response.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response

    # Events

    def _stream(self, feed: Feed, *, head: bool) -> Response:
        """Open a stream of events and count it at once. `_Stream` decreases the count however the stream ends."""
        if self.streams >= STREAMS:
            return _refusal(503, f"At most {STREAMS} pages can follow a run. Close another one.", {"Retry-After": "5"})
        if head:
            return Response(media_type="text/event-stream")
        self.streams, self.listened = self.streams + 1, self.listened + 1
        return _Stream(_events(feed), self._close_stream)

    def _close_stream(self) -> None:
        self.streams -= 1


class _Stream(StreamingResponse):
    """A stream of events that calls `ended` once, even if the client disconnects before the first event."""

    def __init__(self, content: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _events(feed: Feed) -> AsyncIterator[str]:
    number, last_sent = 0, time.monotonic()
    yield "retry: 1000\n\n"
    while True:
        number, data, over = feed.since(number)
        if data is not None:
            last_sent = time.monotonic()
            yield f"event: report\ndata: {data}\n\n"
        elif over:
            yield "event: done\ndata: {}\n\n"
            return
        elif time.monotonic() - last_sent > HEARTBEAT:
            last_sent = time.monotonic()
            yield ": heartbeat\n\n"
        await asyncio.sleep(POLL)


def _refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status, headers=headers)


class _TimeoutProtocol(H11Protocol):
    """Close a connection without a complete request in time, also if a client sends its request byte by byte."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(REQUEST_TIMEOUT, self._check, None)

    def _check(self, previous: Any) -> None:
        if self.transport.is_closing():
            return
        current: Any = self.cycle  # the latest request; None before the first one
        answering = current is not None and not current.response_complete
        if not answering and current is previous:
            self.transport.close()
            return
        self.loop.call_later(REQUEST_TIMEOUT, self._check, current)


class Server:
    """A context manager that serves pages from a background thread. `url` is the link, which works once."""

    def __init__(self, pages: Mapping[str, Page], *, port: int = 0, feed: Feed | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
        except OSError as error:
            self._socket.close()
            raise StorageError(
                f"cannot serve at {LOOPBACK}:{port}: {error.strerror}: choose another port, or leave out the port"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self.pages = Pages(pages, port=self.port, feed=feed)
        self._feed = feed
        config = uvicorn.Config(
            self.pages,
            http=_TimeoutProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=LARGEST_HEAD,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?key={self.pages.key}"

    def wait_for_listener(self, seconds: float) -> bool:
        """Wait until a client has opened a stream, at most `seconds`. Return whether one has."""
        until = time.monotonic() + seconds
        while not self.pages.listened and time.monotonic() < until:
            time.sleep(0.02)
        return self.pages.listened > 0

    def __enter__(self) -> Server:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        """Send the last event to all open streams, then stop the server."""
        if self._feed is not None:
            self._feed.end()
            until = time.monotonic() + 2.0
            while self.pages.streams and time.monotonic() < until:
                time.sleep(0.02)
        self._server.should_exit = True
        self._thread.join(timeout=5.0)
        self._socket.close()


def serve(html: str, *, say: Callable[[str], None], open_browser: bool = True, port: int = 0) -> None:
    """Serve one page until Ctrl-C."""
    with Server({"/": Page(make=lambda: html)}, port=port) as server:
        say(f"open {server.url}")
        say("press Ctrl-C to stop the server")
        if open_browser:
            webbrowser.open(server.url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("")
