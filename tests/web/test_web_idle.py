"""Senders who stop in the middle keep nobody waiting, and are not waited for."""

import contextlib
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest
from web_support import served

from dtm_codec.speech.audio import audio_bytes
from dtm_codec.web import connections, guard
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo


def connected(url: str) -> tuple[socket.socket, str]:
    """A connection, and the name of its host."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20), parts.netloc


def idle_upload(url: str, path: str = "/api/demo/clips") -> socket.socket:
    """Says that a thousand bytes come, and sends four."""
    sender, host = connected(url)
    sender.sendall(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\nRIFF".encode())
    return sender


def test_idle_uploads_keep_nobody_waiting(codec, speech):
    with served(create_app(Demo(codec))) as url:
        idle = [idle_upload(url) for _ in range(30)]
        time.sleep(0.3)
        for _ in range(3):
            answer = httpx.post(f"{url}/api/demo/clips", content=audio_bytes(speech, 16_000), timeout=20)
            assert answer.status_code == 201, answer.text
        for sender in idle:
            sender.close()


@pytest.mark.parametrize("path", ["/api/demo/clips", "/api/listening/listeners"])
def test_a_body_that_does_not_come_is_given_up(codec, running, monkeypatch, path: str):
    monkeypatch.setattr(guard, "SILENCE_SECONDS", 0.5)
    with served(create_app(Demo(codec), running, "token")) as url:
        sender = idle_upload(url, path)
        sender.settimeout(10)
        answer = b"".join(iter(lambda: sender.recv(4096), b""))  # until it is closed
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive in time" in answer


def test_a_body_that_drips_is_given_up(codec, monkeypatch):
    monkeypatch.setattr(guard, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(guard, "SLOWEST", 10**9)
    with served(create_app(Demo(codec))) as url:
        sender = idle_upload(url)
        sender.settimeout(0.2)
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < started + 10:
                sender.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    if sender.recv(4096).startswith(b"HTTP/1.1 408 "):
                        break
        assert time.monotonic() < started + 9


def test_bodies_of_all_requests_together_are_bounded(codec, monkeypatch):
    monkeypatch.setattr(guard, "MAX_HELD_BYTES", 100_000)
    app = create_app(Demo(codec))
    with served(app) as url:
        sender, host = connected(url)
        sender.sendall(f"POST /api/demo/clips HTTP/1.1\r\nHost: {host}\r\nContent-Length: 90000\r\n\r\n".encode())
        sender.sendall(bytes(80_000))
        deadline = time.monotonic() + 10
        while app.held_bytes < 80_000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert httpx.post(f"{url}/api/demo/clips", content=bytes(50_000), timeout=20).status_code == 503
        sender.close()
        while app.held_bytes:
            assert time.monotonic() < deadline, "what has gone is still counted"
            time.sleep(0.01)


@pytest.mark.parametrize("start", [b"", b"GET / HTT", b"GET /api/demo HTTP/1.1\r\nHost: {host}\r\n\r\n+GET / HTT"])
def test_half_open_connections_are_closed(codec, monkeypatch, start: bytes):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with served(create_app(Demo(codec))) as url:
        sender, host = connected(url)
        sender.settimeout(10)
        for part in start.replace(b"{host}", host.encode()).split(b"+"):
            sender.sendall(part)
            time.sleep(0.2)
        before = time.monotonic()
        while sender.recv(65_536):  # until it is closed
            pass
        assert time.monotonic() < before + 4  # uvicorn's own limit after an answer is 5 s
