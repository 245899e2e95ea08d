"""What every request passes: limits on its body, checks of where it comes from, headers on the answer.

The pages are meant for one machine. Two things still reach a server on loopback: other pages in the same browser
(so the host and the origin of a request are checked), and files that someone was sent (so sizes are bounded before
anything is read). Starlette's TrustedHostMiddleware is no replacement: it answers in plain text without naming the
host, where everything else here answers in JSON, and older versions of it read the address [::1] as "[".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

DEFAULT_BODY_LIMIT = 16 * 1024
"""Bytes of any request but an upload: ratings and settings are a few words of JSON."""

SILENCE_SECONDS = 10.0
"""A sender may be silent for so long in the middle of a request."""

GRACE_SECONDS, SLOWEST = 30.0, 100_000
"""A body must be complete after GRACE_SECONDS, plus a second for every SLOWEST bytes that its path allows."""

MAX_HELD_BYTES = 256 * 1024**2
"""Bodies of all requests that are being received or answered. Idle senders hold next to nothing of it."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware, outermost: it refuses requests that must not go further."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] | None,
        body_limits: Mapping[str, int],
        answer_headers: Mapping[str, str] = HEADERS,
    ) -> None:
        """`hosts`: names this server answers to, None for any. `body_limits`: bytes by path, where not the default."""
        self.app = app
        self.hosts = None if hosts is None else frozenset(map(str.lower, hosts))
        self.body_limits = body_limits
        self.answer_headers = answer_headers
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then pass it on with a counted body and guarded answer."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["type"] == "websocket":
            if self._refusal(headers, DEFAULT_BODY_LIMIT) is None:
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        limit = self.body_limits.get(scope["path"], DEFAULT_BODY_LIMIT)
        refusal = self._refusal(headers, limit)
        guarded = _with_headers(send, self.answer_headers)
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            body = _Body(self, receive, limit)
            try:
                await self.app(scope, body.receive, guarded)
            finally:
                self.held_bytes -= body.received

    def _refusal(self, headers: Headers, limit: int) -> JSONResponse | None:
        host = headers.get("host", "")
        if self.hosts is not None and _split(f"//{host}").hostname not in self.hosts:
            return _error(400, f"this server does not answer to the name {host!r}")
        origin = headers.get("origin")
        embedded = headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        if embedded or (origin is not None and _split(origin).netloc != host):
            return _error(403, "requests from other sites are refused")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return _error(400, "the Content-Length is not a number")
        if int(length[:20]) > limit:
            return _too_large(limit)
        return None


def _split(url: str) -> SplitResult:
    """The parts of a URL, all empty if it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers={"Connection": "close"})


def _too_large(limit: int) -> JSONResponse:
    return _error(413, too_large_message(limit))


def too_large_message(limit: int) -> str:
    return f"the request is larger than {limit / 1024**2:.3g} MB, which is the limit"


class _Body:
    """The body of a request, up to a limit and up to a time: a sender who gave no length, or who stops in the middle,
    is not waited for."""

    def __init__(self, guard: Guard, receive: Receive, limit: int) -> None:
        self.received = 0
        self._guard, self._receive, self._limit = guard, receive, limit
        self._deadline = time.monotonic() + GRACE_SECONDS + limit / SLOWEST
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:  # what is waited for now is that the browser goes
            return await self._receive()
        try:
            with anyio.fail_after(min(SILENCE_SECONDS, max(0.0, self._deadline - time.monotonic()))):
                message = await self._receive()
        except TimeoutError:
            raise _stopped(408, "the request did not arrive in time") from None
        self._complete = not message.get("more_body", False)
        size = len(message.get("body", b""))
        self.received += size
        self._guard.held_bytes += size
        if self.received > self._limit:
            raise _stopped(413, too_large_message(self._limit))
        if self._guard.held_bytes > MAX_HELD_BYTES:
            raise _stopped(503, "the server is busy; try again in a moment")
        return message


def _stopped(status: int, message: str) -> HTTPException:
    return HTTPException(status, message, headers={"Connection": "close"})


def _with_headers(send: Send, added: Mapping[str, str]) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded
