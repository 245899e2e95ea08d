"""How uvicorn serves the pages. Connections on which nothing comes are closed: it would wait for the first request of a
connection without end. So are those of callers who take nothing any more, which it would hold as long as they do."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

REQUEST_SECONDS = 10.0
"""The head of a request must be complete this long after the connection opened, or after the request's first byte."""

FAREWELL_SECONDS = 15.0
"""What is still under way when a call ends must be taken in this time."""

MAX_SOCKET_MESSAGE = 1 << 17
"""Bytes; what a page may do with a smaller one is the page's business."""


def server_settings(app: Any, log_level: str = "warning") -> Config:
    """For the command line and for tests alike.

    No pings: an answer to one would wait behind the messages before it, and a caller whom the server cannot keep up
    with would be taken for gone. Who says nothing is the page's business.
    """
    return Config(
        app,
        http=TimedProtocol,
        ws=TimedSocketProtocol,
        ws_max_size=MAX_SOCKET_MESSAGE,
        ws_ping_interval=None,
        log_level=log_level,
        server_header=False,
    )


class TimedProtocol(H11Protocol):
    """uvicorn's own protocol with a limit to its patience. What comes after a request's head is the guard's business
    (guard.py), and what comes after an answer uvicorn limits itself."""

    _waiting: asyncio.TimerHandle | None = None
    _handed_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        requests = self.cycle
        super().data_received(data)
        if self._handed_over:
            return
        if self.cycle is not requests:  # its head is complete
            self._stop_waiting()
        elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # it is the beginning of another request

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From here on it is another protocol's connection."""
        self._stop_waiting()
        self._handed_over = True
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class TimedSocketProtocol(AutoWebSocketsProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's own protocol for WebSockets. It closes a connection when all that was sent has been taken."""

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)  # nothing happens if it is closed by then
