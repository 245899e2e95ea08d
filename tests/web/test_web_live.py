"""A call: what comes back is what the codec's own streams give, and nobody can hold the line for nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import numpy as np
import pytest
from web_support import served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from dtm_codec import DTMCodec
from dtm_codec.speech.pipes import pcm_bytes
from dtm_codec.web import connections, live
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo
from dtm_codec.web.guard import Guard

BLOCK = 320


@pytest.fixture
def app(live_codec: DTMCodec) -> Guard:
    return create_app(Demo(live_codec))


@pytest.fixture
def url(app: Guard) -> Iterator[str]:
    with served(app) as url:
        yield url.replace("http", "ws") + live.LIVE_PATH


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests speak faster than people."""
    monkeypatch.setattr(live, "LEAD_SECONDS", 1e9)


@contextmanager
def calling(url: str, **wishes: Any) -> Iterator[ClientConnection]:
    with connect(url, open_timeout=20) as line:
        line.send(json.dumps({"sample_rate": 16_000, **wishes}))
        yield line


class Answers:
    """All that comes through a line, until it is closed."""

    def __init__(self, line: ClientConnection) -> None:
        self.facts: list[dict[str, Any]] = []
        self.sound = b""
        try:
            while True:
                message = line.recv(timeout=30)
                if isinstance(message, bytes):
                    self.sound += message
                else:
                    self.facts.append(json.loads(message))
        except ConnectionClosed as closed:
            self.code = closed.rcvd.code if closed.rcvd else None

    @property
    def packets(self) -> list[dict[str, Any]]:
        return [facts for facts in self.facts if "bits" in facts]

    @property
    def error(self) -> str:
        return str(self.facts[-1].get("error"))


def speak(line: ClientConnection, speech: np.ndarray, *, stop: bool = True) -> Answers:
    data = pcm_bytes(speech)

    def send() -> None:
        for start in range(0, len(data), 2 * BLOCK):
            line.send(data[start : start + 2 * BLOCK])
        if stop:
            line.send(json.dumps({"stop": True}))

    sender = threading.Thread(target=send)
    sender.start()
    answers = Answers(line)
    sender.join()
    return answers


def test_what_comes_back_is_what_the_streams_give(url: str, in_a_hurry, live_codec: DTMCodec, speech):
    with calling(url, bitrate=700, packet_ms=40) as line:
        answers = speak(line, speech)
    encoder = live_codec.stream_encoder(bitrate=700, packet_ms=40)
    decoder = live_codec.stream_decoder(encoder.start)
    heard = np.frombuffer(pcm_bytes(speech), "<i2")
    packets = [packet for i in range(0, heard.size, BLOCK) for packet in encoder.push(heard[i : i + BLOCK])]
    packets += encoder.flush()
    sound = b"".join(pcm_bytes(decoder.push(packet)) for packet in packets) + pcm_bytes(decoder.flush())
    assert answers.facts[0] == {"latency_ms": 10 + 30 + 30 + 40, "sample_rate": 16_000}
    assert [packet["bits"] for packet in answers.packets] == [8 * len(packet) for packet in packets]
    assert answers.sound == sound
    assert len(sound) == 2 * speech.size
    assert answers.code == 1000
    assert answers.facts[-1] == {"end": True}


def test_lost_packets_are_filled_and_time_goes_on(url: str, in_a_hurry, speech):
    with calling(url, loss=0.4, packet_ms=40) as line:
        answers = speak(line, np.tile(speech, 3))
    lost = sum(packet["lost"] for packet in answers.packets)
    assert 0.25 < lost / len(answers.packets) < 0.55
    assert [packet["packet"] for packet in answers.packets] == list(range(len(answers.packets)))
    assert abs(len(answers.sound) - 2 * 3 * speech.size) <= 2 * 640, "but for the last packet, which may be lost too"


def test_dials_are_turned_while_it_goes_on(url: str, in_a_hurry, speech):
    with calling(url, bitrate=1200) as line:
        data = pcm_bytes(speech)
        line.send(data[:64_000])
        line.send(json.dumps({"bitrate": 300, "loss": 0.5}))
        line.send(data[:64_000])
        line.send(json.dumps({"stop": True}))
        answers = Answers(line)
    first, second = (sum(p["tokens"] for p in part) for part in (answers.packets[:20], answers.packets[30:]))
    assert first > 2 * second
    assert not any(packet["lost"] for packet in answers.packets[:20])
    assert any(packet["lost"] for packet in answers.packets[25:])


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_any_microphone_will_do(url: str, in_a_hurry, rate: int):
    sound = (0.3 * np.sin(np.arange(rate) * 2 * np.pi * 300 / rate)).astype(np.float32)
    with connect(url) as line:
        line.send(json.dumps({"sample_rate": rate}))
        answers = speak(line, sound)
    assert len(answers.sound) == pytest.approx(2 * 16_000, abs=4)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([b"samples at once"], "samples before the first message"),
        (["{"], "JSON"),
        (["[]"], "message"),
        (["{}"], "sample_rate"),
        (['{"sample_rate": 1}'], "sample_rate"),
        (['{"sample_rate": "16000"}'], "sample_rate"),
        (['{"sample_rate": 16000, "loss": 2}'], "loss"),
        (['{"sample_rate": 16000, "bitrate": NaN}'], "bitrate"),
        (['{"sample_rate": 16000, "bitrate": 5}'], "allowed: "),
        (['{"sample_rate": 16000, "packet_ms": 41}'], "packet_ms"),
        (['{"sample_rate": 16000, "model": "/etc/passwd"}'], "model"),
        (['{"sample_rate": 16000}', b"odd"], "3 bytes; allowed"),
        (['{"sample_rate": 16000}', b""], "0 bytes; allowed"),
        (['{"sample_rate": 16000}', bytes(live.MAX_MESSAGE + 2)], "bytes; allowed"),
        (['{"sample_rate": 16000}', '{"bitrate": 1e9}'], "bitrate"),
        (['{"sample_rate": 16000}', '{"bitrate": 9999}'], "allowed: "),
        (['{"sample_rate": 16000}', "[" * 9000], "JSON"),
    ],
)
def test_garbage_ends_the_call_with_one_line(url: str, messages: list[str | bytes], said: str):
    with connect(url) as line:
        for message in messages:
            line.send(message)
        answers = Answers(line)
    assert said in answers.error
    assert "\n" not in answers.error
    assert answers.code == 1008


def test_a_message_without_end_is_cut_off(url: str):
    with connect(url) as line:
        line.send(json.dumps({"sample_rate": 16_000}))
        line.send(bytes(connections.MAX_SOCKET_MESSAGE + 1))
        assert Answers(line).code == 1009


def test_who_is_faster_than_a_microphone_is_none(url: str, speech, monkeypatch):
    monkeypatch.setattr(live, "LEAD_SECONDS", 0.5)
    with calling(url) as line:
        line.send(pcm_bytes(speech)[: live.MAX_MESSAGE])
        answers = Answers(line)
    assert "more sound than time went by" in answers.error
    assert answers.code == 1008


def test_who_says_nothing_is_not_waited_for(url: str, monkeypatch, app: Guard):
    monkeypatch.setattr(live, "SILENCE_SECONDS", 0.4)
    for first in ([], [json.dumps({"sample_rate": 16_000})]):
        with connect(url) as line:
            for message in first:
                line.send(message)
            answers = Answers(line)
        assert "nothing was heard or taken for 0.4 s" in answers.error


def test_who_takes_nothing_is_not_waited_for(live_codec: DTMCodec, monkeypatch):
    monkeypatch.setattr(live, "SILENCE_SECONDS", 0.3)

    class Stuck:
        application_state = None

        async def accept(self) -> None: ...

        async def receive(self) -> dict[str, Any]:
            return {"type": "websocket.receive", "text": json.dumps({"sample_rate": 16_000})}

        async def send_text(self, _: str) -> None:
            await anyio.sleep(60)

        async def close(self, _: int) -> None:
            await anyio.sleep(60)

    room, began = live.LiveRoom(live_codec), time.monotonic()
    anyio.run(room.answer, Stuck())
    assert room.calls == 0
    assert time.monotonic() - began < 10


def speak_on(line: ClientConnection, data: bytes) -> None:
    """For a minute, without listening."""
    for _ in range(120):
        line.send(data)


def test_a_caller_who_stops_reading_is_hung_up_on(app: Guard, in_a_hurry, speech, monkeypatch):
    """Through a real connection, whose buffers fill first."""
    monkeypatch.setattr(live, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(connections, "FAREWELL_SECONDS", 0.5)
    data = pcm_bytes(np.resize(speech, 8000))
    with served(app, buffer=4096) as url, socket.socket() as own:
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            own.setsockopt(socket.SOL_SOCKET, kind, 4096)
        own.connect((urlsplit(url).hostname, urlsplit(url).port))
        address = url.replace("http", "ws") + live.LIVE_PATH
        with connect(address, sock=own, max_queue=1, close_timeout=1) as line:
            line.send(json.dumps({"sample_rate": 16_000}))
            with pytest.raises(ConnectionClosed):
                speak_on(line, data)


def test_a_call_has_an_end(url: str, in_a_hurry, speech, monkeypatch):
    monkeypatch.setattr(live, "MAX_SECONDS", 1.0)
    with calling(url) as line:
        assert "the call lasts 1 s, which is the limit" in speak(line, speech, stop=False).error


def test_lines_are_few_and_free_again(url: str, monkeypatch, speech):
    monkeypatch.setattr(live, "MAX_CALLS", 1)
    with calling(url) as first:
        assert "latency_ms" in json.loads(first.recv(timeout=20))
        with connect(url) as second:
            answers = Answers(second)
        assert "1 calls are going on" in answers.error
        assert answers.code == 1013
    deadline = time.monotonic() + 20
    while True:  # the first has hung up
        with calling(url) as third:
            if "latency_ms" in json.loads(third.recv(timeout=20)):
                break
        assert time.monotonic() < deadline


def test_pages_of_other_sites_get_no_line(url: str):
    for headers in ({"origin": "http://evil.example"}, {"additional_headers": {"Sec-Fetch-Site": "cross-site"}}):
        with pytest.raises(InvalidStatus) as refused, connect(url, **headers):
            pass
        assert refused.value.response.status_code == 403


def test_a_line_outlives_the_patience_for_requests(url: str, monkeypatch, speech):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    with calling(url) as line:
        data = pcm_bytes(speech)
        for i in range(4):
            line.send(data[i * 6400 : (i + 1) * 6400])
            time.sleep(0.25)
        line.send(json.dumps({"stop": True}))
        assert Answers(line).code == 1000


def test_a_model_without_a_limit_says_how_to_get_one(codec: DTMCodec):
    with served(create_app(Demo(codec))) as url, calling(url.replace("http", "ws") + live.LIVE_PATH) as line:
        answers = Answers(line)
    for said in ("looks ahead without a limit", "dtm-codec serve without --model", "'small-live'"):
        assert said in answers.error
    described = live.LiveRoom(codec).describe()
    assert described["latency_ms"] is None
    assert described["obstacle"] == answers.error
