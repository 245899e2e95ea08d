"""What comes from a stranger is refused with a message, or shown as text; never a traceback, never the file system."""

import io
import logging
import socket
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient
from web_support import served

from dtm_codec.speech.audio import audio_bytes
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo
from dtm_codec.web.guard import LOOPBACK_NAMES

GIGABYTE = 1 << 30


def assert_message(answer, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    message = answer.json()["error"]
    assert "Traceback" not in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"RIFF",
        b"<html><script>alert(1)</script>",
        b"\x00" * 1000,
        b"RIFF\xff\xff\xff\xffWAVEfmt ",
        b"fLaC" + b"\xff" * 500,
    ],
    ids=["empty", "cut", "html", "zeros", "wav header", "flac header"],
)
def test_what_is_no_audio_is_refused(demo_client: TestClient, body: bytes):
    assert "audio" in assert_message(demo_client.post("/api/demo/clips", content=body), 422)


def test_audio_of_numbers_that_are_none_is_refused(demo_client: TestClient):
    buffer = io.BytesIO()
    soundfile.write(buffer, np.full(1000, np.nan), 16_000, format="WAV", subtype="FLOAT")
    assert "nan" in assert_message(demo_client.post("/api/demo/clips", content=buffer.getvalue()), 422)


def test_a_small_file_of_long_audio_is_refused(demo_client: TestClient):
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(16_000 * 3600, np.int16), 16_000, format="FLAC")
    assert len(buffer.getvalue()) < 500_000, "an hour of silence is small"
    assert "allowed: up to 5 s" in assert_message(demo_client.post("/api/demo/clips", content=buffer.getvalue()), 422)


def test_a_header_that_claims_less_than_there_is_decodes_no_more(demo_client: TestClient, codec):
    data = bytearray(audio_bytes(np.zeros(16_000 * 20, np.float32), 16_000))
    data[40:44] = (16_000 * 2).to_bytes(4, "little")  # the data chunk says 1 s
    answer = demo_client.post("/api/demo/clips", content=bytes(data))
    assert answer.status_code in (201, 422)
    if answer.status_code == 201:
        assert answer.json()["duration_s"] <= 5


@pytest.mark.parametrize(
    "body",
    [
        {"bitrate": "800"}, {"bitrate": -1}, {"bitrate": 0}, {"bitrate": 1e99}, {"bitrate": None}, {"bitrate": [800]},
        {"bitrate": 800, "model": "/etc/passwd"}, {}, [], "800", None,
    ],
)  # fmt: skip
def test_wrong_types_get_a_message(demo_client: TestClient, speech, body):
    clip = demo_client.post("/api/demo/clips", content=audio_bytes(speech, 16_000)).json()
    assert_message(demo_client.post(f"/api/demo/clips/{clip['id']}/encodings", json=body), 422)


@pytest.mark.parametrize("body", [b"{", b'{"bitrate": NaN}', b'{"bitrate": Infinity}', b"\xff\xfe", b"[" * 10_000])
def test_broken_json_gets_a_message(demo_client: TestClient, speech, body: bytes):
    clip = demo_client.post("/api/demo/clips", content=audio_bytes(speech, 16_000)).json()
    path = f"/api/demo/clips/{clip['id']}/encodings"
    answer = demo_client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert_message(answer, answer.status_code)


def test_an_unreachable_bitrate_says_what_can_be_reached(demo_client: TestClient, speech):
    clip = demo_client.post("/api/demo/clips", content=audio_bytes(speech, 16_000)).json()
    answer = demo_client.post(f"/api/demo/clips/{clip['id']}/encodings", json={"bitrate": 3.0})
    assert "allowed" in assert_message(answer, 422)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/..\\app.py",
        "/static//etc/passwd", "/static/demo.html",
        "/static/", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/style.css%00.js",
        "/api/demo/clips/..%2f..%2fetc%2fpasswd/encodings", "/docs", "/openapi.json", "/listen", "/.git/config",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_pages(demo_client: TestClient, path: str):
    answer = demo_client.get(path)
    assert answer.status_code in (404, 405)
    assert b"root:" not in answer.content
    assert b"import" not in answer.content


@pytest.mark.parametrize(
    "path", ["../test.json", "..%2ftest.json", "audio%2f0000-00.wav", "0000-00.wav", "%00", "a" * 5000]
)
def test_no_stimulus_name_is_a_path(listening_client: TestClient, path: str):
    token = listening_client.post("/api/listening/listeners", json={}).json()["token"]
    answer = listening_client.get(f"/api/listening/stimuli/{path}", headers={"X-Listener-Token": token})
    assert_message(answer, 404)


@pytest.mark.parametrize(
    "body",
    [
        {"rating": 50}, {"stimulus": "x"}, {"stimulus": 5, "rating": 50}, {"stimulus": "x", "rating": 101},
        {"stimulus": "x", "rating": -1}, {"stimulus": "x", "rating": 50.5}, {"stimulus": "x", "rating": "50"},
        {"stimulus": "x", "rating": True}, {"stimulus": "x", "rating": None}, {"stimulus": "x", "rating": 5, "name": 1},
    ],
)  # fmt: skip
def test_ratings_of_wrong_type_are_refused(listening_client: TestClient, body: dict):
    headers = {"X-Listener-Token": listening_client.post("/api/listening/listeners", json={}).json()["token"]}
    assert_message(listening_client.post("/api/listening/ratings", json=body, headers=headers), 422)


@pytest.mark.parametrize("token", ["", "wrong", "ünïcode".encode(), "x" * 10_000])
def test_strangers_hold_no_place(listening_client: TestClient, token):
    headers = {"X-Listener-Token": token}
    for call in (
        listening_client.get("/api/listening/session", headers=headers),
        listening_client.get("/api/listening/stimuli/x", headers=headers),
        listening_client.post("/api/listening/ratings", json={"stimulus": "x", "rating": 5}, headers=headers),
    ):
        assert_message(call, 401)


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer wrong", "only-for-tests", "Basic b25seQ=="])
@pytest.mark.parametrize("path", ["results", "ratings.csv"])
def test_results_need_the_token(listening_client: TestClient, path: str, header: str | None):
    headers = {} if header is None else {"Authorization": header}
    assert_message(listening_client.get(f"/api/listening/{path}", headers=headers), 401)


def test_no_listening_test_is_served_without_a_token(running):
    with pytest.raises(ValueError, match="admin token"):
        create_app(listening=running)


def test_every_answer_carries_the_headers(demo_client: TestClient):
    for answer in (
        demo_client.get("/"),
        demo_client.get("/static/demo.js"),
        demo_client.get("/nowhere"),
        demo_client.get("/", headers={"Host": "evil.example"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "traceback" not in answer.text.lower()


def test_pages_have_no_inline_script_or_foreign_address(demo_client: TestClient, listening_client: TestClient):
    pages = [demo_client.get("/").text, listening_client.get("/").text, listening_client.get("/results").text]
    for page in pages:
        assert "<script>" not in page
        assert "style=" not in page
        assert " onclick" not in page
        assert "http://" not in page
        assert "https://" not in page


def test_other_names_and_other_sites_are_refused(demo_client: TestClient):
    assert_message(demo_client.get("/", headers={"Host": "evil.example"}), 400)
    assert_message(demo_client.get("/", headers={"Host": "[broken"}), 400)
    sent = demo_client.post("/api/demo/clips", content=b"x", headers={"Origin": "http://evil.example"})
    assert_message(sent, 403)
    assert_message(demo_client.get("/", headers={"Origin": "http://["}), 403)
    assert demo_client.get("/", headers={"Origin": "http://localhost"}).status_code == 200


def test_other_sites_may_link_here_but_not_embed(demo_client: TestClient):
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert_message(demo_client.get("/api/demo", headers={**elsewhere, "Sec-Fetch-Mode": "no-cors"}), 403)
    assert demo_client.get("/", headers={**elsewhere, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert demo_client.get("/api/demo", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_name_that_was_given_is_answered_whatever_its_case(codec, client):
    app = create_app(Demo(codec), hosts=(*LOOPBACK_NAMES, "Listen.Example.org"))
    assert client(app).get("/", headers={"Host": "listen.example.org"}).status_code == 200
    assert_message(client(app).get("/", headers={"Host": "evil.example"}), 400)


def test_html_in_names_travels_as_text(listening_client: TestClient):
    name = "<img src=x onerror=alert(1)>"
    listening_client.post("/api/listening/listeners", json={"name": name})
    results = listening_client.get("/api/listening/results", headers={"Authorization": "Bearer only-for-tests"})
    assert results.headers["content-type"] == "application/json"
    assert results.json()["listeners"][0]["name"] == name
    too_long = listening_client.post("/api/listening/listeners", json={"name": "x" * 81})
    assert_message(too_long, 422)


def test_a_failure_nobody_foresaw_is_logged_and_not_shown(codec, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Demo, "add_clip", fail)
    client = TestClient(create_app(Demo(codec)), base_url="http://localhost", raise_server_exceptions=False)
    with caplog.at_level(logging.ERROR):
        answer = client.post("/api/demo/clips", content=b"x")
    assert "secret" not in assert_message(answer, 500)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "secret detail" in caplog.text


# A gigabyte, to a real server


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
    connection.sendall(f"POST /api/demo/clips HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode())
    return connection


def test_a_gigabyte_is_refused_before_it_is_sent(codec):
    with served(create_app(Demo(codec, max_seconds=5))) as url, connected(url) as connection:
        started = time.perf_counter()
        connection.sendall(f"Content-Length: {GIGABYTE}\r\n\r\n".encode() + bytes(1000))
        answer = connection.recv(4096)
        assert b" 413 " in answer.split(b"\r\n")[0]
        assert time.perf_counter() - started < 10


@pytest.mark.parametrize("path", ["/api/demo/clips", "/api/demo/clips/x/encodings", "/api/listening/ratings"])
def test_an_endless_body_is_stopped_at_the_limit(codec, running, path: str):
    app = create_app(Demo(codec, max_seconds=5), running, "token")
    limit = Demo(codec, max_seconds=5).max_bytes
    with served(app) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            sent, piece = 0, bytes(65_536)
            try:
                while sent < GIGABYTE:
                    connection.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
                    sent += len(piece)
            except OSError:
                pass  # the server has hung up
            assert sent < limit + 32_000_000, "what was on its way when the server refused"


def test_a_sender_who_hangs_up_is_no_failure(codec, caplog):
    with caplog.at_level(logging.ERROR), served(create_app(Demo(codec, max_seconds=5))) as url:
        with connected(url) as connection:
            connection.sendall(b"Content-Length: 1000\r\n\r\nhalf")
        time.sleep(0.3)
    assert caplog.records == []
