"""What every request passes: limits on its body, checks of where it comes from, headers on the answer.

The pages are meant for one machine. Two things still reach a server on loopback: other pages in the same browser
(so the host and the origin of a request are checked), and files that someone was sent (so sizes are bounded before
anything is read). Starlette's TrustedHostMiddleware is no replacement: it answers in plain text without naming the
host, where everything else here answers in JSON, and older versions of it read the address [::1] as "[".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

DEFAULT_BODY_LIMIT = 16 * 1024
"""Bytes of any request but an upload: ratings and settings are a few words of JSON."""

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

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, body_limits: Mapping[str, int]) -> None:
        """`hosts`: names this server answers to, None for any. `body_limits`: bytes by path, where not the default."""
        self.app = app
        self.hosts = None if hosts is None else frozenset(map(str.lower, hosts))
        self.body_limits = body_limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then pass it on with a counted body and guarded answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self.body_limits.get(scope["path"], DEFAULT_BODY_LIMIT)
        refusal = self._refusal(headers, limit)
        guarded = _with_headers(send)
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            await self.app(scope, _counted(receive, limit), guarded)

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


def _counted(receive: Receive, limit: int) -> Receive:
    """The body, up to the limit: a sender who gave no length is stopped in the middle."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise HTTPException(413, too_large_message(limit), headers={"Connection": "close"})
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded
