"""Law 3 of docs/architecture.md for all other bytes: `BitstreamError`, and nothing else."""

import time
import tracemalloc

import numpy as np
import pytest
from dtm_examples import BROKEN_FILES, MODEL, SIZE, make, seal, utterances
from hypothesis import assume, given
from hypothesis import strategies as st

from dtm_codec.bitstream import container
from dtm_codec.bitstream.header import MAX_STEPS, Header
from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Layout


def read_or_refuse(data: bytes) -> Encoded | None:
    """What may happen to any bytes: an utterance that is written as just these bytes, or `BitstreamError`."""
    try:
        info = container.inspect(data)
    except BitstreamError:
        info = None
    try:
        encoded = Encoded.from_bytes(data, MODEL)
    except BitstreamError:
        return None
    assert info is not None
    forms = [encoded.to_bytes("raw"), encoded.to_bytes()]
    if encoded.layout.token_bits == MODEL.token_bits:  # a forged header may have made a sound file of another width
        forms.append(encoded.to_bytes("compact", MODEL))
    assert data in forms
    return encoded


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    assert read_or_refuse(data) is None
    read_or_refuse(seal(b"DTM" + data))


@given(st.integers(0, 7), st.binary(max_size=80))
def test_any_bytes_behind_a_sound_start(flags: int, data: bytes) -> None:
    read_or_refuse(seal(b"DTM" + bytes([0x20 | flags]) + b"\x2c\x00\xe6\x4b\xed\xe0\xc0\xde\xc0\xde\x46\x28" + data))


@given(utterances(codebook_size=SIZE, max_steps=120), st.sampled_from(["raw", "compact"]), st.data())
def test_a_flipped_bit(encoded: Encoded, mode: str, data: st.DataObject) -> None:
    written = bytearray(encoded.to_bytes(mode, MODEL))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    assert read_or_refuse(bytes(written)) is None


@given(utterances(codebook_size=SIZE, max_steps=120), st.sampled_from(["raw", "compact"]), st.data())
def test_a_flipped_bit_under_a_fitting_checksum(encoded: Encoded, mode: str, data: st.DataObject) -> None:
    content = bytearray(encoded.to_bytes(mode, MODEL)[:-4])
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    assert read_or_refuse(seal(bytes(content))) != encoded


@given(utterances(codebook_size=SIZE, max_steps=120), st.sampled_from(["raw", "compact"]), st.data())
def test_truncated_or_with_bytes_at_the_end(encoded: Encoded, mode: str, data: st.DataObject) -> None:
    written = encoded.to_bytes(mode, MODEL)
    length = data.draw(st.integers(0, len(written) - 5))
    more = data.draw(st.binary(min_size=1, max_size=8))
    assert read_or_refuse(written[:length]) is None
    assert read_or_refuse(written + more) is None
    assert read_or_refuse(seal(written[:-4] + more)) != encoded
    assert read_or_refuse(seal(written[:length])) != encoded


@given(utterances(codebook_size=SIZE, max_steps=120), st.sampled_from(["raw", "compact"]))
def test_padding_must_be_zero(encoded: Encoded, mode: str) -> None:
    written = encoded.to_bytes(mode)
    assume(container.inspect(written).padding_bits)
    content = written[:-5] + bytes([written[-5] | 1])
    with pytest.raises(BitstreamError, match="not the bytes"):
        Encoded.from_bytes(seal(content))


def test_range_coding_without_gain_is_not_accepted() -> None:
    encoded = make(np.array([True]), np.array([5]), Layout(16_000, 160, 6, None))
    content = container.Content(encoded.codes, encoded.mask, 160, encoded.model_id, encoded.layout)
    coded = container._assemble(content, None, b"", None).data
    with pytest.raises(BitstreamError, match="not the bytes"):
        Encoded.from_bytes(coded)


LAYOUT = Layout(16_000, 160, 6, None)
FIXED = Layout(16_000, 160, 6, 255)


@pytest.mark.parametrize(("content", "named"), BROKEN_FILES)
def test_the_error_names_what_is_wrong(content: bytes, named: str) -> None:
    with pytest.raises(BitstreamError, match=named):
        Encoded.from_bytes(content)


@pytest.mark.parametrize("read", [Encoded.from_bytes, container.inspect])
@pytest.mark.parametrize(
    "header",
    [
        Header(LAYOUT, MAX_STEPS * 160, "bomb:00000000"),
        Header(LAYOUT, MAX_STEPS * 160, "bomb:00000000", mask_bytes=30),
        Header(LAYOUT, MAX_STEPS * 160, "bomb:00000000", mask_bytes=30, tokens_coded=True),
        Header(FIXED, MAX_STEPS * 160, "bomb:00000000"),
        Header(FIXED, MAX_STEPS * 160, "bomb:00000000", tokens_coded=True),
    ],
    ids=["raw", "mask", "both", "fixed", "fixed-coded"],
)
def test_a_small_file_cannot_claim_a_long_utterance(header: Header, read: object) -> None:
    data = seal(header.to_bytes() + bytes(40))
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(BitstreamError):
        read(data)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6
    assert seconds < 1


def test_more_steps_than_the_limit_are_refused_by_writer_and_reader() -> None:
    with pytest.raises(BitstreamError, match="num_samples"):
        Header(LAYOUT, MAX_STEPS * 160 + 1, "bomb:00000000")
    sound = Header(LAYOUT, MAX_STEPS * 160, "bomb:00000000").to_bytes()
    assert sound.endswith(b"\x80\x80\x80\x80\x0a")  # 2684354560
    with pytest.raises(BitstreamError, match="num_samples = 2684354561"):
        Encoded.from_bytes(seal(sound[:-5] + b"\x81\x80\x80\x80\x0a"))
