"""Limited look-ahead under the laws of the codec: batches and pieces change nothing, and the future does not count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from live_support import tiny, usual_tau

from dtm_codec import DTMCodec
from dtm_codec.encoded import Encoded
from dtm_codec.live.latency import latency_of

CAUSAL = {f"{stack}_lookahead": 0 for stack in ("enc1", "enc2", "dec1", "dec2")}


@pytest.fixture(params=[{}, CAUSAL], ids=["look-ahead", "causal"])
def codec(request: pytest.FixtureRequest) -> DTMCodec:
    return tiny(**request.param)


def assert_same(one: list[Encoded], other: list[Encoded]) -> None:
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.mask, b.mask)
        assert np.array_equal(a.codes, b.codes)


def test_a_batch_is_one_at_a_time(codec: DTMCodec, speech: np.ndarray) -> None:
    utterances = [speech[5000 : 5000 + length] for length in (1, 159, 161, 8000, 20_001)]
    tau = usual_tau(codec, speech)
    together, alone = codec.encode(utterances, 16_000, tau=tau), [codec.encode(x, 16_000, tau=tau) for x in utterances]
    assert_same(together, alone)
    for a, b in zip(codec.decode(together), map(codec.decode, alone), strict=True):
        assert np.abs(a - b).max() < 1e-4


def test_pieces_are_the_whole(codec: DTMCodec, speech: np.ndarray) -> None:
    tau = usual_tau(codec, speech)
    whole = codec.encode(speech, 16_000, tau=tau)
    audio = codec.decode(whole)
    codec.backend.piece = 16
    assert_same([whole], [codec.encode(speech, 16_000, tau=tau)])
    assert np.abs(codec.decode(whole) - audio).max() < 1e-4


def test_the_future_beyond_the_latency_changes_nothing(codec: DTMCodec, speech: np.ndarray) -> None:
    latency, changed = latency_of(codec.config), speech.copy()
    changed[16_000:] = 0.1 * np.random.default_rng(0).standard_normal(16_000)
    tau = usual_tau(codec, speech)
    before, after = (codec.encode(x, 16_000, tau=tau) for x in (speech, changed))
    steps = 100 - int(latency.encoder // 10) - 1
    tokens = int(before.mask[:steps].sum())
    assert np.array_equal(before.mask[:steps], after.mask[:steps])
    assert np.array_equal(before.codes[:tokens], after.codes[:tokens])
    assert not np.array_equal(before.mask, after.mask)
    samples = 16_000 - round(16 * latency.total) - 320
    assert np.abs(codec.decode(before) - codec.decode(after))[:samples].max() < 1e-5


def test_training_and_coding_see_the_same(codec: DTMCodec, speech: np.ndarray) -> None:
    crops = np.stack([speech[:16_000], speech[16_000:]])
    codec.network.tau.fill_(usual_tau(codec, speech))
    output = codec.network(torch.from_numpy(crops))
    encoded = codec.encode(list(crops), 16_000)
    assert np.array_equal(output.mask.numpy(), np.stack([e.mask for e in encoded]))
    assert np.array_equal(output.codes.numpy(), np.concatenate([e.codes for e in encoded]))


def test_weights_fit_models_with_and_without_look_ahead() -> None:
    other = tiny(**{f"{stack}_lookahead": None for stack in ("enc1", "enc2", "dec1", "dec2")})
    codec = tiny()
    codec.network.load_state_dict(other.network.state_dict())
    assert codec.model_id != other.model_id  # what one encodes, the other must not decode
