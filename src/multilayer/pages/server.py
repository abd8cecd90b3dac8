"""A page on this machine alone: loopback, one secret link, one page and at most one stream of events.

    who asks          the link's key, which works once, becomes a cookie that scripts cannot read and that other sites
                      cannot send; without it everything is refused
    from where        Host must be this very address, Origin this very page or nothing, on every method
    what is there     the names that were listed and nothing else: no folder is served, so no path leads out of one
    what is answered  GET and HEAD; no body is read; headers that keep the page from being framed, sniffed or kept

A client that does not finish its request is let go. Left out on purpose: other addresses than loopback, and files.
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
PATIENCE = 10.0
"""Seconds in which a client must have asked for something."""
CONNECTIONS, STREAMS = 64, 8
LARGEST_HEAD = 16 * 1024
POLL = 0.25
HEARTBEAT = 15.0
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
    """What a stream of events tells: the latest report, and that it was the last. Any thread may tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: str | None = None
        self._number = 0
        self._over = False

    def tell(self, data: str) -> None:
        """`data` takes the place of what was told before: who listens slowly misses what lies between."""
        with self._lock:
            self._latest, self._number = data, self._number + 1

    def end(self) -> None:
        with self._lock:
            self._over = True

    def since(self, number: int) -> tuple[int, str | None, bool]:
        """The number of the latest, its data unless it is the one given, and whether nothing will follow."""
        with self._lock:
            return self._number, None if self._number == number else self._latest, self._over


@dataclass(frozen=True, kw_only=True)
class Page:
    """One thing that the server has."""

    make: Callable[[], str]
    kind: str = "text/html"


class Pages:
    """The application: what may be asked for, by whom."""

    def __init__(self, pages: Mapping[str, Page], *, port: int, feed: Feed | None = None) -> None:
        self.pages, self.feed = pages, feed
        self.key, self._secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.cookie = f"multilayer-{port}"  # cookies do not tell ports of a machine apart: their names do
        self.hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        self.streams, self.listened = 0, 0
        self._used = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no start-up to wait for, and a WebSocket that is not accepted is refused
        request = Request(scope, receive)
        response = self._answer(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        refusal = self._refused(request)
        if refusal is not None:
            return refusal
        name, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"]
        if name == "/" and query and request.method == "GET":
            if not self._admitted(request) and not self._exchanged(request):
                return _no(403, "This link has been used, or is not complete: start the command again for another.")
            return self._welcome()
        if not self._admitted(request):
            return _no(403, "Open the link that the command printed.")
        if request.method not in ("GET", "HEAD"):
            return _no(405, "Only GET and HEAD are answered.", {"Allow": "GET, HEAD"})
        if query:
            return _no(404, "There is no such page.")
        if name == "/events" and self.feed is not None:
            return self._stream(self.feed, head=request.method == "HEAD")
        if name not in self.pages:
            return _no(404, "There is no such page.")
        page = self.pages[name]
        text = page.make()
        found = _POLICY.search(text[:4000])
        policy = f"{found[1]}; frame-ancestors 'none'" if found else HEADERS["Content-Security-Policy"]
        return Response(text, media_type=page.kind, headers={"Content-Security-Policy": policy})

    # Who asks

    def _refused(self, request: Request) -> Response | None:
        """What comes from elsewhere, or sends what nobody asked for; looked at before anything else."""
        headers = request.headers
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            return _no(431, "That is more than this server reads.", {"Connection": "close"})
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return _no(403, "This server answers to its own address alone.")
        if len(origins) > 1 or (origins and origins[0] != f"http://{hosts[0]}"):
            return _no(403, "This server answers to its own page alone.")
        sites = headers.getlist("sec-fetch-site")
        if any(site not in ("same-origin", "none") for site in sites):
            return _no(403, "Open the link by itself: paste it into the address bar.")
        if "transfer-encoding" in headers or any(n != "0" for n in headers.getlist("content-length")):
            return _no(413, "No body is read.", {"Connection": "close"})
        return None

    def _admitted(self, request: Request) -> bool:
        given = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self._secret.encode())

    def _exchanged(self, request: Request) -> bool:
        """Whether the link's key was given, for the first time."""
        given = request.query_params.getlist("key")
        right = len(given) == 1 and hmac.compare_digest(given[0].encode(), self.key.encode())
        if not right or self._used:
            return False
        self._used = True
        return True

    def _welcome(self) -> Response:
        response = Response(status_code=303, headers={"Location": "/"})
        response.set_cookie(self.cookie, self._secret, httponly=True, samesite="strict", path="/")
        return response

    # Events

    def _stream(self, feed: Feed, *, head: bool) -> Response:
        """Open a stream of events and count it at once. `_Stream` decreases the count when the stream ends for any
        reason."""
        if self.streams >= STREAMS:
            return _no(503, "Too many are listening already.", {"Retry-After": "5"})
        if head:
            return Response(media_type="text/event-stream")
        self.streams, self.listened = self.streams + 1, self.listened + 1
        return _Stream(_told(feed), self._left)

    def _left(self) -> None:
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


async def _told(feed: Feed) -> AsyncIterator[str]:
    number, spoke = 0, time.monotonic()
    yield "retry: 1000\n\n"
    while True:
        number, data, over = feed.since(number)
        if data is not None:
            spoke = time.monotonic()
            yield f"event: report\ndata: {data}\n\n"
        elif over:
            yield "event: done\ndata: {}\n\n"
            return
        elif time.monotonic() - spoke > HEARTBEAT:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL)


def _no(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status, headers=headers)


class _Impatient(H11Protocol):
    """Closes a connection on which nothing was asked for in time: one that sends its request byte by byte, too."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(PATIENCE, self._look, None)

    def _look(self, before: Any) -> None:
        if self.transport.is_closing():
            return
        current: Any = self.cycle  # None until something was asked for
        answering = current is not None and not current.response_complete
        if not answering and current is before:
            self.transport.close()
            return
        self.loop.call_later(PATIENCE, self._look, current)


class Server:
    """Serves pages from a thread of its own, from `with` to its end. `url` is the link that works once."""

    def __init__(self, pages: Mapping[str, Page], *, port: int = 0, feed: Feed | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
        except OSError as error:
            self._socket.close()
            raise StorageError(
                f"cannot serve at {LOOPBACK}:{port}: {error.strerror}: choose another port, or none"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self.pages = Pages(pages, port=self.port, feed=feed)
        self._feed = feed
        config = uvicorn.Config(
            self.pages,
            http=_Impatient,
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
        """Whether anyone has listened, or does within so many seconds: browsers take a while to start."""
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
        """Lets those who listen hear the end, then stops."""
        if self._feed is not None:
            self._feed.end()
            until = time.monotonic() + 2.0
            while self.pages.streams and time.monotonic() < until:
                time.sleep(0.02)
        self._server.should_exit = True
        self._thread.join(timeout=5.0)
        self._socket.close()


def serve(html: str, *, say: Callable[[str], None], open_browser: bool = True, port: int = 0) -> None:
    """Shows one page until Ctrl-C."""
    with Server({"/": Page(make=lambda: html)}, port=port) as server:
        say(f"open {server.url}")
        say("Ctrl-C ends it")
        if open_browser:
            webbrowser.open(server.url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("")
