"""`written`: the compact file of an utterance, header aside, has the bitrate that was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec, preset
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.errors import RateError
from dtm_codec.speech.audio import read_audio, sample_path, write_audio


@pytest.fixture(scope="module")
def audio() -> np.ndarray:
    return read_audio(sample_path("amiable"))[0]


@pytest.fixture(scope="module")
def codec(audio: np.ndarray) -> DTMCodec:
    """Untrained, with token statistics that gain something."""
    torch.manual_seed(0)
    sizes = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    codec = DTMCodec(replace(preset("s-vfr-50"), dim=32, heads=2, mlp_hidden=48, **sizes))
    codes = codec.encode(audio, 16_000, bitrate=1000).codes
    codec.token_model = TokenModel.from_counts(np.bincount(codes, minlength=1 << 14) + 0.05)
    return codec


def written_bits(codec: DTMCodec, encoded: Encoded) -> int:
    info = encoded.to_file("compact", codec.token_model).info
    return info.mask_bits + info.token_bits_written


@pytest.mark.parametrize("bitrate", [300, 500, 800])
@pytest.mark.parametrize("seconds", [0.5, 1.3, 3.2])
def test_files_have_the_rate_that_was_asked_for(codec, audio, bitrate: float, seconds: float) -> None:
    encoded = codec.encode(audio[: round(16_000 * seconds)], 16_000, bitrate=bitrate, written=True)
    budget = bitrate * encoded.duration_s
    # with random weights, all codes may change with one token more, and the file by the bits of a few tokens
    assert budget - max(0.01 * budget, 4 * 14) <= written_bits(codec, encoded) <= budget
    nominal = codec.encode(audio[: round(16_000 * seconds)], 16_000, bitrate=bitrate)
    assert encoded.codes.size >= nominal.codes.size, "what coding saves buys tokens"
    assert codec.from_bytes(codec.to_bytes(encoded)) == encoded


def test_a_batch_a_file_and_pieces_give_the_same(codec, audio, tmp_path, monkeypatch) -> None:
    parts = [audio[:9_000], audio[9_000:20_000], audio[20_000:]]
    single = [codec.encode(part, 16_000, bitrate=600, written=True) for part in parts]
    assert codec.encode(parts, 16_000, bitrate=600, written=True) == single
    write_audio(tmp_path / "a.wav", audio, 16_000)
    whole, _ = read_audio(tmp_path / "a.wav")
    expected = codec.encode(whole, 16_000, bitrate=600, written=True)
    monkeypatch.setattr("dtm_codec.coding.chain.Z1_KEPT", 0)  # z1 is computed again for each trial
    assert codec.encode_file(tmp_path / "a.wav", bitrate=600, written=True) == expected


def test_stage_1_is_computed_once_and_stage_2_a_few_times(codec, audio, monkeypatch) -> None:
    from dtm_codec.coding.chain import Stage1

    stage1, stage2 = [], []
    compute, again = Stage1.compute, Stage1.again
    monkeypatch.setattr(Stage1, "compute", lambda self, *a: stage1.append(1) or compute(self, *a))
    monkeypatch.setattr(Stage1, "again", lambda self: stage2.append(1) or again(self))
    progress: list[float] = []
    codec.encode(audio, 16_000, bitrate=700, written=True)
    assert len(stage1) == 1
    assert 1 <= len(stage2) <= 5
    with_progress = read_audio(sample_path("amiable"))[0]
    codec.encode_file(sample_path("amiable"), bitrate=700, written=True, on_progress=progress.append)
    assert with_progress.size == audio.size
    assert progress == sorted(progress)
    assert 0.7 < progress[-1] <= 1


def test_effort_does_not_break_the_rate(codec, audio, free_moves) -> None:
    encoded = codec.encode(audio[:16_000], 16_000, bitrate=500, written=True, effort=1)
    assert 500 - 4 * 14 <= written_bits(codec, encoded) <= 500
    assert encoded != codec.encode(audio[:16_000], 16_000, bitrate=500, written=True)


def test_qualities_are_three_rates_that_any_audio_can_have(codec, audio) -> None:
    sizes = [
        written_bits(codec, codec.encode(audio, 16_000, quality=q, written=True)) for q in ("low", "normal", "high")
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.6 * sizes[2]
    nominal = codec.encode(audio, 16_000, quality="normal")
    assert nominal == codec.encode(audio, 16_000, bitrate=800)
    for length in (1, 159, 1000):
        assert codec.encode(audio[:length], 16_000, quality="low", written=True).num_samples == length
    silent = codec.encode(np.zeros(16_000, np.float32), 16_000, quality="high", written=True)
    assert written_bits(codec, silent) <= 1010


def test_a_fixed_rate_has_no_rate_as_written() -> None:
    codec = DTMCodec.from_pretrained("random:s-ffr-50")
    for asked in ({"bitrate": 800, "written": True}, {"quality": "low"}, {"quality": "low", "written": True}):
        with pytest.raises(RateError, match="at a fixed rate; allowed: a nominal bitrate"):
            codec.encode(np.zeros(1000, np.float32), 16_000, **asked)
