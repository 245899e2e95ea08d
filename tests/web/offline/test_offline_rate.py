"""Selection and rate control of the page, held to the package's on random statistics and on those of speech."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_support import Node, ScriptError, floats, layout_json, text

from dtm_codec import DTMCodec
from dtm_codec.errors import RateError
from dtm_codec.layout import Layout
from dtm_codec.rate.calibration import calibrate, tokens_for_bitrate
from dtm_codec.selectors.distances import cosine
from dtm_codec.selectors.ple import PLE
from dtm_codec.speech.audio import Samples

untimed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def random_steps(seed: int, count: int, zeros: float) -> np.ndarray:
    """Step lengths with silences, and with a few that are longer than tau."""
    generator = np.random.default_rng(seed)
    steps = generator.exponential(0.1, count) * (generator.random(count) >= zeros)
    steps[0] = 0
    return steps.astype(np.float32)


@given(
    st.integers(0, 2**32),
    st.integers(1, 400),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.floats(0.01, 3) | st.sampled_from([0.125, 0.25, 0.5]),
    st.none() | st.integers(1, 9),
    st.booleans(),
)
@untimed
def test_masks_are_those_of_the_package(
    node: Node, seed: int, count: int, zeros: float, tau: float, s_max: int | None, first: bool
) -> None:
    steps = random_steps(seed, count, zeros)
    if tau in (0.125, 0.25, 0.5):  # the path meets multiples of tau exactly
        steps = (np.round(steps * 16) / 16).astype(np.float32)
    expected = PLE(s_max, first_crossing=first).keep(steps[:, None], tau)
    found = node.call("keep", text(steps), tau, {"sMax": s_max, "firstCrossing": first})
    assert found == "".join(str(int(kept)) for kept in expected)


@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([0.0, 0.4, 1.0]), st.integers(1, 400))
@untimed
def test_calibration_finds_the_same_tau(node: Node, seed: int, count: int, zeros: float, target: int) -> None:
    steps = random_steps(seed, count, zeros)
    expected = calibrate(PLE(), [steps[:, None]], target)
    assert node.call("calibrate", text(steps), target, {}) == {"tau": expected.tau, "tokens": expected.tokens}


@given(
    st.integers(1, 10**6),
    st.floats(1, 3000) | st.integers(1, 3000).map(float),
    st.integers(1, 24),
    st.none() | st.integers(1, 60),
)
@untimed
def test_a_bitrate_is_the_same_number_of_tokens(
    node: Node, samples: int, bitrate: float, token_bits: int, s_max: int | None
) -> None:
    layout = Layout(16_000, 160, token_bits, None)
    try:
        expected, refusal = tokens_for_bitrate(bitrate, samples, layout, s_max), ""
    except RateError as error:
        expected, refusal = None, str(error)
    try:
        found, refused = node.call("tokens", bitrate, samples, layout_json(layout), s_max), ""
    except ScriptError as error:
        found, refused = None, str(error)
    assert found == expected
    assert refused.partition(";")[2] == refusal.partition(";")[2]


def test_a_tau_that_is_none_is_refused(node: Node) -> None:
    with pytest.raises(ScriptError, match="tau = 0; allowed: > 0"):
        node.call("keep", text(np.zeros(3, np.float32)), 0, {})


def test_distances_and_masks_of_speech(node: Node, speech: Samples) -> None:
    """From z1 of the bundled model to the mask: the lengths to float32, the masks but for ties."""
    codec = DTMCodec.from_pretrained("small")
    z1 = codec.stage1(speech, 16_000)
    expected = cosine(z1)
    found = floats(node.call("steps", text(z1), z1.shape[1]))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    for bitrate in (400, 800, 1300):
        target = tokens_for_bitrate(bitrate, speech.size, codec.layout)
        ours = node.call("calibrate", text(found), target, {})
        theirs = calibrate(PLE(), [expected[:, None]], target)
        assert ours["tokens"] == theirs.tokens == target
        masks = [
            node.call("keep", text(steps), tau, {}) for steps, tau in ((found, ours["tau"]), (expected, theirs.tau))
        ]
        assert sum(a != b for a, b in zip(*masks, strict=True)) <= 2
