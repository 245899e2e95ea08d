"""Laws 3 and 4 of docs/architecture.md, for files that `write` has written."""

import subprocess
import sys

import numpy as np
import pytest
from dtm_examples import MODELS, NAMES, make, skewed_model, utterances
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.bitstream import container, token_coder
from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Layout

VFR = Layout(16_000, 160, 14, None)
FFR = Layout(16_000, 160, 16, 2)


def speechlike(steps: int, layout: Layout, seed: int = 0) -> Encoded:
    """Spans that drift between 1 and 4 steps, uniform codes."""
    generator = np.random.default_rng(seed)
    mask = np.zeros(steps, dtype=bool)
    position = 0
    while position < steps:
        mask[position] = True
        position += int(2.5 + 1.5 * np.sin(position / 40) + generator.random() * 0.6)
    if layout.stride is not None:
        mask = layout.fixed_mask(steps)
    return make(mask, generator.integers(1 << layout.token_bits, size=int(mask.sum())), layout)


@given(utterances(), st.sampled_from(["raw", "compact"]))
def test_read_inverts_write(encoded: Encoded, mode: str) -> None:
    data = encoded.to_bytes(mode)
    assert Encoded.from_bytes(data) == encoded


@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_read_inverts_write_with_token_statistics(data: st.DataObject, size: int) -> None:
    encoded = data.draw(utterances(codebook_size=size))
    written = encoded.to_bytes("compact", MODELS[size])
    assert Encoded.from_bytes(written, MODELS[size]) == encoded


@given(st.data(), st.sampled_from(sorted(MODELS)))
def test_compact_is_never_larger_than_raw(data: st.DataObject, size: int) -> None:
    encoded = data.draw(utterances(codebook_size=size))
    raw, compact, coded = (
        len(encoded.to_bytes(mode, model))
        for mode, model in (("raw", None), ("compact", None), ("compact", MODELS[size]))
    )
    assert coded <= compact <= raw


@given(utterances())
def test_raw_payload_is_what_the_paper_counts_to_the_bit(encoded: Encoded) -> None:
    info = container.inspect(encoded.to_bytes("raw"))
    bits = encoded.bits
    assert (info.mask_bits, info.token_bits_written) == (bits.position, bits.content)
    assert 0 <= info.padding_bits < 8
    assert 8 * info.file_bytes == 8 * info.overhead_bytes + bits.total + info.padding_bits


@given(st.data(), st.sampled_from(sorted(MODELS)), st.sampled_from(["raw", "compact"]))
def test_inspect_tells_all_without_the_statistics(data: st.DataObject, size: int, mode: str) -> None:
    encoded = data.draw(utterances(codebook_size=size))
    written = encoded.to_bytes(mode, MODELS[size])
    info = container.inspect(written)
    assert (info.layout, info.num_samples, info.model_id) == (encoded.layout, encoded.num_samples, encoded.model_id)
    assert (info.steps, info.tokens) == (encoded.mask.size, encoded.codes.size)
    assert info.file_bytes == len(written)
    assert 0 <= info.padding_bits < 8
    assert info.mode == "raw" if mode == "raw" else info.mode in ("raw", "compact")


@pytest.mark.parametrize("layout", [VFR, FFR], ids=["vfr", "ffr"])
@pytest.mark.parametrize("mode", ["raw", "compact"])
def test_every_length_from_one_sample_to_minutes(layout: Layout, mode: str) -> None:
    for samples in [*range(1, 700), 16_000, 16_001, 480_000, 480_079, 2_880_123]:
        utterance = speechlike(layout.steps(samples), layout)
        encoded = Encoded(utterance.codes, utterance.mask, samples, "s-vfr-50:1f3a1f3a", layout)
        assert Encoded.from_bytes(encoded.to_bytes(mode)) == encoded


@pytest.mark.parametrize("mode", ["raw", "compact"])
@pytest.mark.parametrize("layout", [VFR, FFR], ids=["vfr", "ffr"])
def test_two_seconds_at_800_bps_carry_at_most_24_bytes_of_overhead(layout: Layout, mode: str) -> None:
    generator = np.random.default_rng(0)
    mask = np.zeros(200, dtype=bool)
    mask[0] = True
    mask[generator.choice(np.arange(1, 200), 99, replace=False)] = True
    mask = mask if layout.stride is None else layout.fixed_mask(200)
    encoded = make(mask, generator.integers(1 << layout.token_bits, size=100), layout, model_id="s-vfr-100:1f3a1f3a")
    assert encoded.bits.total == 1600  # 200 bytes
    data = encoded.to_bytes(mode, skewed_model(1 << layout.token_bits))
    assert container.inspect(data).overhead_bytes <= 24
    assert len(data) <= 200 + 24


def test_rhythm_and_skew_are_compressed() -> None:
    encoded = speechlike(3_000, Layout(16_000, 160, 6, None))
    codes = np.minimum(np.random.default_rng(0).geometric(0.3, size=encoded.codes.size) - 1, 63)
    encoded = make(encoded.mask, codes, encoded.layout)
    model = token_coder.TokenModel.from_counts(np.bincount(codes, minlength=64))
    info = container.inspect(encoded.to_bytes("compact", model))
    share = np.bincount(codes) / codes.size
    entropy = -codes.size * float((share[share > 0] * np.log2(share[share > 0])).sum())
    assert info.mode == "compact"
    assert info.mask_bits < 0.75 * encoded.mask.size
    assert entropy <= info.token_bits_written <= 1.01 * entropy + 16


def test_what_is_coded_without_gain_stays_in_fixed_width() -> None:
    encoded = make(np.array([True]), np.array([5]), VFR)
    assert encoded.to_bytes("compact", skewed_model(1 << 14)) == encoded.to_bytes("raw")


@given(NAMES)
def test_model_identity_survives(model_id: str) -> None:
    encoded = make(np.array([True]), np.array([0]), VFR, model_id=model_id)
    assert container.inspect(encoded.to_bytes("raw")).model_id == model_id


def test_tokens_are_read_with_the_statistics_that_wrote_them_or_not_at_all() -> None:
    mine, theirs = skewed_model(64), skewed_model(64, classes=5)
    encoded = make(np.ones(300, dtype=bool), np.zeros(300, dtype=int), Layout(16_000, 160, 6, 1), model_id="m:00000001")
    data = encoded.to_bytes("compact", mine)
    assert Encoded.from_bytes(data, mine) == encoded
    with pytest.raises(BitstreamError, match="m:00000001"):
        Encoded.from_bytes(data)
    said = f"{mine.fingerprint:04x} of model 'm:00000001'; given: {theirs.fingerprint:04x}"
    with pytest.raises(BitstreamError, match=said):
        Encoded.from_bytes(data, theirs)
    for statistics in (mine, theirs, None):  # nothing is range coded with them
        assert Encoded.from_bytes(encoded.to_bytes(), statistics) == encoded


@given(st.data(), st.sampled_from(sorted(MODELS)), st.sampled_from(["raw", "compact"]))
def test_what_a_writer_reports_is_what_a_reader_finds(data: st.DataObject, size: int, mode: str) -> None:
    file = data.draw(utterances(codebook_size=size)).to_file(mode, MODELS[size])
    assert file.info == container.inspect(file.data)


def test_a_file_of_an_older_version_names_the_release_that_reads_it() -> None:
    old = b"DTM\x10" + make(np.array([True]), np.array([5]), VFR).to_bytes()[4:]
    for read in (Encoded.from_bytes, container.inspect):
        with pytest.raises(BitstreamError, match=r"version 1: dtm-codec 0\.1 reads it; this release reads version 2"):
            read(old)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_id": "toolongname:00000000"}, "toolongname:00000000"),
        ({"model_id": "small"}, "small"),
        ({"model_id": "small:00zz00zz"}, "small:00zz00zz"),
        ({"layout": Layout(16_000, 160, 25, None)}, "token_bits = 25"),
        ({"layout": Layout(1 << 24, 160, 14, None)}, "sample_rate = 16777216"),
        ({"layout": Layout(0, 160, 14, None)}, "sample_rate = 0"),
        ({"layout": Layout(16_000, 1 << 16, 14, None)}, "hop_length = 65536"),
        ({"layout": Layout(16_000, 160, 14, 256)}, "stride = 256"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_by_name(change: dict, named: str) -> None:
    fields = {"codes": [0], "mask": [True], "num_samples": 1, "model_id": "small:00000000", "layout": VFR} | change
    with pytest.raises(BitstreamError, match=named):
        Encoded(**fields).to_bytes()


def test_wrong_mode_and_wrong_statistics_are_refused() -> None:
    encoded = make(np.array([True, True]), np.array([3, 16_000]), VFR)
    with pytest.raises(BitstreamError, match="'zip'"):
        encoded.to_bytes("zip")
    with pytest.raises(BitstreamError, match="6 bits"):
        encoded.to_bytes("compact", skewed_model(64))
    with pytest.raises(BitstreamError, match="16000"):
        encoded.to_bytes("compact", skewed_model(15_000))


def test_an_hour() -> None:
    encoded = speechlike(360_000, VFR)
    assert Encoded.from_bytes(encoded.to_bytes()) == encoded


def test_the_room_knows_no_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import numpy as np
from dtm_codec.bitstream import container
from dtm_codec.encoded import Encoded
from dtm_codec.layout import Layout
encoded = Encoded([1, 2], [True, True], 200, "small:00000000", Layout(16000, 160, 4, None))
assert Encoded.from_bytes(encoded.to_bytes()) == encoded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
