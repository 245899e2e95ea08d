import base64
import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.cli.web import other_codecs
from dtm_codec.config import DEFAULT_QUALITY, SelectorConfig
from dtm_codec.speech.audio import audio_bytes, read_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import MAX_CLIPS, Demo, Heard, OtherCodec


def uploaded(client: TestClient, audio: np.ndarray, rate: int = 16_000) -> dict:
    answer = client.post("/api/demo/clips", content=audio_bytes(audio, rate))
    assert answer.status_code == 201, answer.text
    return answer.json()


def encoded(client: TestClient, clip: dict, bitrate: float) -> dict:
    answer = client.post(f"/api/demo/clips/{clip['id']}/encodings", json={"bitrate": bitrate})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_and_its_parts_are_there(demo_client: TestClient):
    page = demo_client.get("/")
    assert page.status_code == 200
    parts = (
        "style.css",
        "demo.css",
        "demo.js",
        "recorder.js",
        "live.js",
        "capture.js",
        "common.js",
        "player.js",
        "figures.js",
        "wav.js",
    )
    for part in (*parts, "favicon.svg"):
        assert demo_client.get(f"/static/{part}").status_code == 200
    assert demo_client.get("/demo").content == page.content
    assert demo_client.get("/results").status_code == 404, "there is no listening test"


def test_what_is_shown_is_what_the_codec_did(demo_client: TestClient, codec: DTMCodec, speech):
    clip = uploaded(demo_client, speech)
    shown = encoded(demo_client, clip, 800)
    sent, _ = read_audio(audio_bytes(speech, 16_000))
    own = codec.encode(sent, 16_000, bitrate=800, written=True)
    assert shown["positions"] == own.positions.tolist()
    bits, info = own.bits, own.to_file().info
    assert shown["nominal"] == {"content": bits.content, "position": bits.position, "total": bits.total}
    written = {"content": info.token_bits_written, "position": info.mask_bits}
    assert shown["written"] == written | {"total": sum(written.values())}
    assert 0.98 * 800 < shown["written"]["total"] / shown["duration_s"] <= 800
    assert codec.from_bytes(base64.b64decode(shown["file"])) == own
    heard, rate = read_audio(base64.b64decode(shown["audio"]))
    assert rate == 16_000
    assert heard == pytest.approx(np.clip(codec.decode(own), -1, 1), abs=1e-3)
    assert len(shown["local_rate"]) == shown["steps"] == own.mask.size


def test_a_lower_bitrate_spends_fewer_bits(demo_client: TestClient, speech):
    clip = uploaded(demo_client, speech)
    totals = [encoded(demo_client, clip, bitrate)["written"]["total"] for bitrate in (300, 600, 1200)]
    assert totals == sorted(totals)
    assert totals[0] < totals[2] / 3


def test_any_rate_and_channels_are_resampled_and_mixed(demo_client: TestClient):
    time_axis = np.arange(2 * 44_100) / 44_100
    clip = uploaded(demo_client, np.sin(2 * np.pi * 440 * time_axis), 44_100)
    assert clip["duration_s"] == pytest.approx(2, abs=1e-3)
    assert read_audio(base64.b64decode(clip["audio"]))[1] == 16_000


def test_the_sample_is_there(demo_client: TestClient):
    # this client's limit is 5 s, and the sample is longer: it is cut
    assert demo_client.post("/api/demo/sample").json()["duration_s"] == 5


def test_five_seconds_of_speech_are_answered_within_a_second(client):
    client = client(create_app(Demo(DTMCodec.from_pretrained("random:s-vfr-50"))))
    clip = client.post("/api/demo/sample").json()
    encoded(client, clip, 800)
    started = time.process_time()  # the work, not what else the machine does meanwhile
    for bitrate in (500, 900, 1100):
        encoded(client, clip, bitrate)
    assert (time.process_time() - started) / 3 < clip["duration_s"] / 5


def test_a_fixed_rate_model_offers_one_rate(codec: DTMCodec, client, speech):
    fixed = dataclasses.replace(codec.config, selector=SelectorConfig(name="stride"))
    client = client(create_app(Demo(DTMCodec(fixed))))
    model = client.get("/api/demo").json()
    assert model["fixed_rate"]
    assert model["bitrate"] == {"lowest": 700, "highest": 700, "default": 700}
    shown = encoded(client, uploaded(client, speech), 700)
    rate = shown["nominal"]["total"] / shown["duration_s"]
    assert (shown["nominal"]["position"], round(rate)) == (0, 702), "one token more at the end"
    assert model["qualities"] == {}


def test_the_default_is_that_of_the_command_line(demo_client: TestClient):
    model = demo_client.get("/api/demo").json()
    assert model["qualities"] == {"low": 450, "normal": 800, "high": 1010}
    assert model["bitrate"]["default"] == model["qualities"][DEFAULT_QUALITY]


def test_another_codec_is_heard_beside_ours(codec: DTMCodec, client, speech):
    def half_as_loud(audio: np.ndarray, rate: int) -> Heard:
        assert rate == 16_000
        return Heard(audio / 2, 1234)

    demo = Demo(codec, others={"half": OtherCodec("Half <b>", half_as_loud)})
    client = client(create_app(demo))
    assert client.get("/api/demo").json()["others"] == {"half": "Half <b>"}
    clip = uploaded(client, speech)
    heard = client.post(f"/api/demo/clips/{clip['id']}/comparisons", json={"codec": "half"}).json()
    assert heard["bps"] == pytest.approx(1234 * 16_000 / speech.size)
    np.testing.assert_allclose(read_audio(base64.b64decode(heard["audio"]))[0], speech / 2, atol=1e-3)
    refused = client.post(f"/api/demo/clips/{clip['id']}/comparisons", json={"codec": "whole"})
    assert refused.status_code == 422
    assert refused.json()["error"] == "codec 'whole'; allowed: half"


@pytest.mark.parametrize("name", ["codec2:1300", "opus:6"])
def test_installed_codecs_can_be_compared_with(name: str, speech):
    others = other_codecs()
    if name not in others:
        pytest.skip(f"needs the program of {name}")
    heard = others[name].round_trip(speech, 16_000)
    assert heard.audio.size == speech.size
    assert 1000 < heard.bits * 16_000 / speech.size < 9000
    envelopes = [np.convolve(np.abs(audio), np.ones(800), "valid") for audio in (heard.audio, speech)]
    assert np.corrcoef(envelopes)[0, 1] > 0.8, "it is the same speech, in time"


def test_old_uploads_give_way_and_say_so(demo_client: TestClient):
    short = np.ones(100, np.float32) / 2
    clips = [uploaded(demo_client, short) for _ in range(MAX_CLIPS + 1)]
    encoded(demo_client, clips[-1], 800)
    gone = demo_client.post(f"/api/demo/clips/{clips[0]['id']}/encodings", json={"bitrate": 800})
    assert gone.status_code == 404
    assert "load it again" in gone.json()["error"]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_nobody_waits_for_is_not_computed(codec: DTMCodec, speech, monkeypatch):
    demo, begun, go_on = Demo(codec), [], threading.Event()

    def encode(_: Demo, __: object, bitrate: float) -> dict:
        begun.append(bitrate)
        assert go_on.wait(20)
        return {}

    monkeypatch.setattr(Demo, "encode", encode)
    with served(create_app(demo)) as url:
        clip = httpx.post(f"{url}/api/demo/clips", content=audio_bytes(speech, 16_000)).json()
        asked = {"url": f"{url}/api/demo/clips/{clip['id']}/encodings", "timeout": 20}
        with ThreadPoolExecutor() as pool:
            first = pool.submit(httpx.post, **asked, json={"bitrate": 500})
            until(lambda: begun)
            for bitrate in (600, 700):  # the page is closed while these wait
                with pytest.raises(httpx.ReadTimeout):
                    httpx.post(asked["url"], json={"bitrate": bitrate}, timeout=0.2)
            last = pool.submit(httpx.post, **asked, json={"bitrate": 800})
            until(lambda: demo._encoding.statistics().tasks_waiting == 3)
            go_on.set()
            assert [first.result().status_code, last.result().status_code] == [200, 200]
    assert begun == [500, 800]


def test_a_single_sample_can_be_encoded(demo_client: TestClient):
    shown = encoded(demo_client, uploaded(demo_client, np.zeros(1, np.float32)), 1500)
    assert shown["tokens"] == 1
