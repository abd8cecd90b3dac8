"""R10: the local server sends the page only to the browser that opened its link, and refuses every other request."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from multilayer.pages import server as web
from multilayer.pages.server import Feed, Page, Server

SECRET = "content of the page"
HTML = f'<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src \'none\'"><p>{SECRET}</p>'


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


def ask(port: int, request: bytes, *, wait: float = 5.0) -> Answer:
    """Send raw bytes, and read until the server closes the connection. The status is 0 if there is no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(request)
        data = b""
        try:
            while part := connection.recv(65536):
                data += part
        except (TimeoutError, ConnectionResetError):
            pass
    head, _, body = data.partition(b"\r\n\r\n")
    if not head:
        return Answer(0)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body.decode("utf-8", "replace"))


def message(method: str, path: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server({"/": Page(make=lambda: HTML)}) as running:
        first = ask(running.port, message("GET", f"/?key={running.pages.key}", [("Host", f"127.0.0.1:{running.port}")]))
        assert first.status == 303
        yield running


def cookie(server: Server) -> tuple[str, str]:
    return "Cookie", f"{server.pages.cookie}={server.pages._secret}"


HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1:{port}.",
    "127.0.0.1.:{port}",
    "127.0.0.1:{port}@evil.example",
    "evil.example@127.0.0.1:{port}",
    "127.0.0.1:{port},evil.example",
    "127.0.0.1.nip.io:{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "0x7f000001:{port}",
    "0177.0.0.1:{port}",
    "0.0.0.0:{port}",
    "[::1]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "LOCALHOST:{port}",
    "localhost",
    "localhost.:{port}",
    "localhost:{port}/",
    "localhost:0{port}",
    "",
]
ORIGINS = [
    "null",
    "",
    "http://evil.example",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}.evil.example",
    "http://localhost:{port}",
    "HTTP://127.0.0.1:{port}",
    "file://",
    "chrome-extension://abc",
    "http://127.0.0.1:{port} http://evil.example",
]
PATHS = [
    "/..",
    "/../",
    "/../../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2fetc%2fpasswd",
    "/%252e%252e/etc/passwd",
    "/.%00./etc/passwd",
    "/..%c0%af..%c0%afetc/passwd",
    "/..\\..\\etc\\passwd",
    "/....//....//etc/passwd",
    "//",
    "//etc/passwd",
    "///etc/passwd",
    "/./",
    "/.",
    "/;/etc/passwd",
    "/index.html",
    "/index",
    "/report.html",
    "/report.json",
    "/config.json",
    "/events.jsonl",
    "/model.safetensors",
    "/checkpoints/",
    "/.git/config",
    "/.env",
    "/pages/report.html",
    "/static/report.html",
    "/%2F",
    "/%",
    "/%zz",
    "/events",
    "/events/",
    "/%65vents",
    "/EVENTS",
    "/?",
    "/#",
    "/favicon.ico",
    "/robots.txt",
    "http://evil.example/",
    "http://127.0.0.1/etc/passwd",
    "/" + "a" * 4000,
    "/docs",
    "/openapi.json",
]
KEYS = [
    "/?key=",
    "/?key=wrong",
    "/?key={cut}",
    "/?key={upper}",
    "/?key={key}x",
    "/?key={key}&key={key}",
    "/?key=wrong&key={key}",
    "/?KEY={key}",
    "/?token={key}",
    "/?x={key}",
    "/?key={key}",
    "/events?key={key}",
    "/#key={key}",
    "/?key%3D{key}",
]
COOKIES = [
    "{name}=",
    "{name}=wrong",
    "{name}={cut}",
    "{name}={value}x",
    "{name}={upper}",
    "multilayer={value}",
    "multilayer-1={value}",
    "x{name}={value}",
    "{value}",
    "{name}=a; {name}=b",
]
EVERY_METHOD = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "GETX",
    "get",
]
METHODS = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "GETX", "get"]
REFUSED = {0, 400, 403, 404, 405, 411, 413, 414, 421, 431, 501, 503}


def table(server: Server) -> Iterator[tuple[str, bytes]]:
    """Yield every request that must be refused: a description and its bytes."""
    port, key, secret = server.port, server.pages.key, server.pages._secret
    address, login = ("Host", f"127.0.0.1:{port}"), cookie(server)
    for host in HOSTS:
        given = ("Host", host.format(port=port))
        for method in ("GET", "HEAD", "POST"):
            yield f"{method} with Host {host!r}", message(method, "/", [given, login])
    yield "no Host", message("GET", "/", [login])
    yield "two Hosts", message("GET", "/", [address, ("Host", "evil.example"), login])
    yield "the same Host twice", message("GET", "/", [address, address, login])
    yield "HTTP/1.0 without Host", b"GET / HTTP/1.0\r\n\r\n"
    for origin in ORIGINS:
        for method in ("GET", "HEAD", "POST"):
            yield (
                f"{method} with Origin {origin!r}",
                message(method, "/", [address, ("Origin", origin.format(port=port)), login]),
            )
    valid_origin = ("Origin", f"http://127.0.0.1:{port}")
    yield "two Origins", message("GET", "/", [address, valid_origin, ("Origin", "http://evil.example"), login])
    for site in ("cross-site", "same-site", "", "none, cross-site"):
        yield f"Sec-Fetch-Site {site!r}", message("GET", "/", [address, ("Sec-Fetch-Site", site), login])
    for path in PATHS:
        if path not in ("/?", "/#"):
            yield f"path {path[:60]!r}", message("GET", path, [address, login])
        yield f"path {path[:60]!r} without a cookie", message("GET", path, [address])
    for target in KEYS:
        filled = target.format(key=key, cut=key[:-1], upper=key.swapcase())
        yield f"key in {target!r}", message("GET", filled, [address])
    for text in COOKIES:
        filled = text.format(name=server.pages.cookie, value=secret, cut=secret[:-1], upper=secret.swapcase())
        yield f"cookie {text!r}", message("GET", "/", [address, ("Cookie", filled)])
    for method in METHODS:
        for headers in ([address], [address, login], [address, valid_origin, login]):
            yield f"{method} with {len(headers)} headers", message(method, "/", headers)
    upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
    upgrade += [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]
    yield "WebSocket without a cookie", message("GET", "/", [address, *upgrade])
    yield "WebSocket to the stream", message("GET", "/events", [address, login, *upgrade])
    for length in ("5", "10000000000", "-1", "abc", "0, 5"):
        yield f"a body of {length}", message("GET", "/", [address, login, ("Content-Length", length)], b"hello")
    yield (
        "a body in chunks",
        message("GET", "/", [address, login, ("Transfer-Encoding", "chunked")], b"5\r\nhello\r\n0\r\n\r\n"),
    )
    yield "a posted body", message("POST", "/", [address, login, ("Content-Length", "5")], b"hello")
    yield "a head too large", message("GET", "/", [address, login, ("X", "y" * 200_000)])
    yield "a line too long", message("GET", "/" + "a" * 100_000, [address, login])
    yield "too many headers", message("GET", "/", [address, *((f"X-{i}", "y" * 40) for i in range(2000)), login])
    yield "not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    yield "only a line end", b"\r\n\r\n"
    yield "a folded header line", message("GET", "/", [address, ("Cookie", f"\r\n {login[1]}x")])
    yield "a smuggled request", message("GET", "/", [address], b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")


def test_requests_without_the_cookie_or_from_other_sites_are_refused(server: Server, tried: Any) -> None:
    requests = list(table(server))
    assert len(requests) >= 120
    assert len({name for name, _ in requests}) == len(requests)
    for name, request in requests:
        answer = ask(server.port, request)
        assert answer.status in REFUSED, f"{name}: {answer}"
        assert SECRET not in answer.body, name
        assert server.pages._secret not in f"{answer.headers}{answer.body}", name
        assert server.pages.key not in answer.body, name
    tried("R10: requests that must be refused", len(requests))


def test_the_browser_that_opens_the_link_gets_the_page_with_its_security_headers() -> None:
    with Server({"/": Page(make=lambda: HTML)}) as server:
        host = ("Host", f"127.0.0.1:{server.port}")
        first = ask(server.port, message("GET", f"/?key={server.pages.key}", [host, ("Sec-Fetch-Site", "none")]))
        assert (first.status, first.headers["location"]) == (303, "/")
        given = first.headers["set-cookie"]
        assert "httponly" in given.lower()
        assert "samesite=strict" in given.lower()
        login = ("Cookie", given.split(";")[0])
        for headers in (
            [host, login],
            [host, login, ("Range", "bytes=0-3")],
            [host, login, ("Origin", f"http://127.0.0.1:{server.port}")],
            [host, login, ("Sec-Fetch-Site", "same-origin"), ("Content-Length", "0")],
            [("Host", f"localhost:{server.port}"), login],
        ):
            answer = ask(server.port, message("GET", "/", headers))
            assert (answer.status, answer.body) == (200, HTML)
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in answer.headers
        assert ask(server.port, message("HEAD", "/", [host, login])).body == ""
        again = ask(server.port, message("GET", f"/?key={server.pages.key}", [host, login]))
        assert again.status == 303
        other = ask(server.port, message("GET", f"/?key={server.pages.key}", [host]))
        assert other.status == 403
        assert "has been used" in other.body
        assert ask(server.port, message("POST", "/", [host, login])).headers["allow"] == "GET, HEAD"


def test_the_server_listens_on_loopback_only() -> None:
    with Server({"/": Page(make=lambda: HTML)}) as server:
        assert server._socket.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_in_use_is_a_clear_error(server: Server) -> None:
    with pytest.raises(Exception, match=f"cannot serve at 127.0.0.1:{server.port}.*choose another port"):
        Server({}, port=server.port)


def test_a_connection_without_a_complete_request_in_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUEST_TIMEOUT", 0.2)
    with (
        Server({"/": Page(make=lambda: HTML)}) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
        started, closed = time.monotonic(), False
        while not closed and time.monotonic() - started < 5:
            try:
                slow.sendall(b"a")
                time.sleep(0.05)
            except OSError:
                closed = True
        assert closed


def test_more_streams_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "STREAMS", 1)
    feed = Feed()
    feed.publish("{}")
    with Server({"/": Page(make=lambda: HTML)}, feed=feed) as server:
        headers = [("Host", f"127.0.0.1:{server.port}"), cookie(server)]
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as one:
            one.sendall(message("GET", "/events", headers))
            assert b"event-stream" in one.recv(4096)
            assert ask(server.port, message("GET", "/events", headers)).status == 503
            assert ask(server.port, message("GET", "/events", headers[:1])).status == 403


def streams_of(server: Server, count: int) -> tuple[list[socket.socket], list[bytes]]:
    """Open `count` connections and request the stream on each. Return the sockets and the status lines."""
    request = message("GET", "/events", [("Host", f"127.0.0.1:{server.port}"), cookie(server)])
    found = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(count)]
    for one in found:
        one.sendall(request)
    return found, [one.recv(4096).split(b"\r\n")[0] for one in found]


def test_fifty_simultaneous_clients_get_at_most_eight_streams() -> None:
    feed = Feed()
    feed.publish("{}")
    with Server({"/": Page(make=lambda: HTML)}, feed=feed) as server:
        for _ in range(2):  # closed streams free their places
            found, lines = streams_of(server, 50)
            assert sum(b" 200 " in line for line in lines) == web.STREAMS
            assert sum(b" 503 " in line for line in lines) == 50 - web.STREAMS
            assert server.pages.streams == web.STREAMS
            for one in found:
                one.close()
            until = time.monotonic() + 5
            while server.pages.streams and time.monotonic() < until:
                time.sleep(0.02)
            assert server.pages.streams == 0


def test_clients_that_disconnect_before_the_first_event_free_their_stream() -> None:
    feed = Feed()
    with Server({"/": Page(make=lambda: HTML)}, feed=feed) as server:
        request = message("GET", "/events", [("Host", f"127.0.0.1:{server.port}"), cookie(server)])
        for _ in range(3 * web.STREAMS):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
                one.sendall(request)
        until, status = time.monotonic() + 5, 0
        while status != 200 and time.monotonic() < until:
            status = ask(server.port, request.replace(b"GET", b"HEAD", 1)).status
        assert status == 200
        found, lines = streams_of(server, web.STREAMS)
        assert all(b" 200 " in line for line in lines)
        for one in found:
            one.close()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_requests_of_another_site_are_refused_with_every_method_and_the_cookie(server: Server, method: str) -> None:
    """Unknown methods and WebSocket upgrades are refused as well."""
    address, login = ("Host", f"127.0.0.1:{server.port}"), cookie(server)
    upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
    upgrade += [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]
    for more in ([], upgrade):
        for path in ("/", "/events", f"/?key={server.pages.key}"):
            for headers in (
                [address, ("Origin", "http://evil.example"), login],
                [address, ("Origin", "null"), login],
                [("Host", "evil.example"), login],
                [("Host", f"evil.example:{server.port}"), ("Origin", f"http://evil.example:{server.port}"), login],
            ):
                answer = ask(server.port, message(method, path, [*headers, *more]))
                assert answer.status == 403, (method, path, headers)
                assert SECRET not in answer.body
        same_origin = [address, ("Origin", f"http://127.0.0.1:{server.port}"), login, *more]
        assert ask(server.port, message(method, "/", same_origin)).status == (200 if method in ("GET", "HEAD") else 405)


def test_a_stream_sends_the_latest_report_and_then_the_end() -> None:
    feed = Feed()
    feed.publish('{"a":1}')
    feed.publish('{"a":2}')
    with Server({"/": Page(make=lambda: HTML)}, feed=feed) as server:
        headers = [("Host", f"127.0.0.1:{server.port}"), cookie(server)]
        feed.end()
        answer = ask(server.port, message("GET", "/events", headers))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '{"a":1}' not in answer.body
    assert answer.body.index('{"a":2}') < answer.body.index("event: done")
