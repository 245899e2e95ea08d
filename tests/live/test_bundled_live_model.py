"""The bundled live model: late by a known time, understandable while it is spoken, and when packets are lost."""

from __future__ import annotations

import numpy as np
import pytest

from dtm_codec import DTMCodec
from dtm_codec.live.latency import latency_of
from dtm_codec.models.hub import LIVE_MODEL
from dtm_codec.speech.audio import Samples, read_audio, sample_path

PACKET_MS = 80


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return DTMCodec.from_pretrained(LIVE_MODEL)


@pytest.fixture(scope="module")
def speech() -> Samples:
    return read_audio(sample_path(), 16_000)[0]


def streamed(codec: DTMCodec, speech: Samples, loss: float = 0.0) -> Samples:
    """Speech through packets of a stream at 800 bps, some of which get lost."""
    encoder = codec.stream_encoder(bitrate=800, packet_ms=PACKET_MS)
    decoder = codec.stream_decoder(encoder.start)
    line = np.random.default_rng(0)
    heard = [
        decoder.lost(1) if line.random() < loss else decoder.push(packet)
        for packet in (*encoder.push(speech), *encoder.flush())
    ]
    return np.concatenate([*heard, decoder.flush()])


def intelligibility(speech: Samples, heard: Samples) -> float:
    stoi = pytest.importorskip("pystoi").stoi
    return float(stoi(speech, heard[: speech.size], 16_000))


def test_a_packet_of_80_ms_is_there_after_200(codec: DTMCodec) -> None:
    assert latency_of(codec.config).total + PACKET_MS <= 200


def test_what_is_streamed_is_understood(codec: DTMCodec, speech: Samples) -> None:
    heard = streamed(codec, speech)
    assert heard.size >= speech.size
    assert intelligibility(speech, heard) > 0.75


def test_masked_steps_fill_a_tenth_of_lost_packets_better_than_silence(codec: DTMCodec, speech: Samples) -> None:
    whole, filled = streamed(codec, speech), streamed(codec, speech, loss=0.1)
    step = PACKET_MS * 16
    silent = whole.copy()
    line = np.random.default_rng(0)
    for begin in range(0, silent.size, step):
        if line.random() < 0.1:
            silent[begin : begin + step] = 0
    assert intelligibility(speech, filled) > max(0.65, intelligibility(speech, silent))
