"""Packets round-trip; whatever else comes from a network raises `BitstreamError` and nothing else."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Layout
from dtm_codec.live.packets import MAX_RECORD, MAX_STEPS, Packet, StreamFormat, _crc12, read_record, write_record

VARIABLE = StreamFormat("live:c0ffee00", Layout(16_000, 160, 14, None), 8)
FIXED = StreamFormat("s-ffr-50:00000001", Layout(16_000, 160, 16, 2), 4)
ODD = StreamFormat("x:ffffffff", Layout(12_345, 77, 24, None), MAX_STEPS)
forms = st.sampled_from([VARIABLE, FIXED, ODD])


@st.composite
def packets(draw: st.DrawFn, form: StreamFormat) -> Packet:
    hop = form.layout.hop_length
    last = draw(st.none() | st.integers(1, form.steps * hop))
    steps = form.steps if last is None else form.layout.steps(last)
    if form.layout.stride is None:
        mask = np.array(draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    else:
        mask = form.layout.fixed_mask(steps)
    count, most = int(mask.sum()), (1 << form.layout.token_bits) - 1
    codes = draw(st.lists(st.integers(0, most), min_size=count, max_size=count))
    return Packet(draw(st.integers(0, 2047)), mask, np.array(codes, np.int64), last)


def seal(form: StreamFormat, flags: int, payload: bytes) -> bytes:
    """With a check that fits: what an attacker would send."""
    return (flags << 8 | form._check(flags, payload)).to_bytes(3, "big") + payload


def read_or_refuse(form: StreamFormat, data: bytes) -> Packet | None:
    try:
        packet = form.read(data)
    except BitstreamError:
        return None
    assert form.write(packet) == data
    return packet


@given(forms, st.data())
def test_what_is_written_is_read(form: StreamFormat, data: st.DataObject) -> None:
    packet = data.draw(packets(form))
    written = form.write(packet)
    assert len(written) <= MAX_RECORD
    read = form.read(written)
    assert (read.sequence, read.last_samples) == (packet.sequence, packet.last_samples)
    assert np.array_equal(read.mask, packet.mask)
    assert np.array_equal(read.codes, packet.codes)
    bits = (packet.mask.size if form.layout.stride is None else 0) + packet.codes.size * form.layout.token_bits
    if packet.last_samples is None:
        assert len(written) == 3 + -(-bits // 8)  # three bytes of overhead, and what fills the last byte


@given(forms, st.integers(1, 20_000), st.data())
def test_packets_of_an_utterance_join_to_it_again(form: StreamFormat, num_samples: int, data: st.DataObject) -> None:
    steps = form.layout.steps(num_samples)
    draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
    mask = draw.random(steps) < 0.5 if form.layout.stride is None else form.layout.fixed_mask(steps)
    codes = draw.integers(1 << form.layout.token_bits, size=int(mask.sum()))
    split = list(form.split(mask, codes, num_samples))
    joined = form.join(split)
    assert np.array_equal(joined[0], mask)
    assert np.array_equal(joined[1], codes)
    assert joined[2] == num_samples
    with pytest.raises(BitstreamError, match="without the last one"):
        form.join(split[:-1])


@given(forms, st.data())
def test_a_burst_of_up_to_12_wrong_bits_is_found(form: StreamFormat, data: st.DataObject) -> None:
    written = form.write(data.draw(packets(form)))
    number = int.from_bytes(written, "big")
    burst = data.draw(st.integers(1, (1 << 12) - 1))
    number ^= burst << data.draw(st.integers(0, 8 * len(written) - 12))
    assert read_or_refuse(form, number.to_bytes(len(written), "big")) is None


@given(forms, st.integers(0, 0xFFF), st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes(form: StreamFormat, flags: int, payload: bytes) -> None:
    read_or_refuse(form, payload)
    read_or_refuse(form, seal(form, flags << 4, payload))


@given(forms, st.data())
def test_truncated_and_longer_are_refused_under_a_fitting_check(form: StreamFormat, data: st.DataObject) -> None:
    packet = data.draw(packets(form))
    written = form.write(packet)
    flags, payload = int.from_bytes(written[:2], "big") & 0xFFF0, written[3:]
    for changed in (payload[:-1], payload + b"\0"):
        if changed != payload and packet.last_samples is None:
            assert read_or_refuse(form, seal(form, flags, changed)) is None


def test_packets_of_another_stream_are_refused() -> None:
    packet = Packet(3, np.ones(8, bool), np.arange(8))
    others = [StreamFormat(f"live:{i:08x}", VARIABLE.layout, 8) for i in range(500)]
    taken = [other for other in others if read_or_refuse(other, VARIABLE.write(packet)) is not None]
    assert len(taken) <= 2  # 1 in 4096 by chance
    assert read_or_refuse(StreamFormat(VARIABLE.model_id, VARIABLE.layout, 16), VARIABLE.write(packet)) is None


def test_the_check_is_crc_12_of_3gpp() -> None:
    assert int(f"{_crc12(0, b'123456789'):012b}"[::-1], 2) == 0xDAF  # CRC-12/UMTS reflects what comes out


@given(st.binary(max_size=60), st.integers(0, 255))
def test_any_start(data: bytes, kind: int) -> None:
    for content in (data, b"DTS" + data, b"DTS" + bytes([kind]) + data, VARIABLE.start[: len(data)] + data[:3]):
        for start in (content, content + zlib.crc32(content).to_bytes(4, "big")):
            try:
                form = StreamFormat.from_start(start)
            except BitstreamError:
                continue
            assert form.start == start


@pytest.mark.parametrize("form", [VARIABLE, FIXED, ODD])
def test_a_start_says_it_all(form: StreamFormat) -> None:
    assert StreamFormat.from_start(form.start) == form
    assert len(VARIABLE.start) == 21
    for wrong in (form.start[:-1], form.start + b"\0", b"DTM" + form.start[3:]):
        with pytest.raises(BitstreamError):
            StreamFormat.from_start(wrong)


def test_what_cannot_be_written_is_refused() -> None:
    for steps in (0, 33):
        with pytest.raises(BitstreamError, match=f"{steps} steps a packet"):
            StreamFormat("a:00000000", VARIABLE.layout, steps)
    with pytest.raises(BitstreamError, match="multiple of the stride 2"):
        StreamFormat("a:00000000", FIXED.layout, 5)
    with pytest.raises(BitstreamError, match="model id"):
        StreamFormat("A", VARIABLE.layout, 8)


def test_records_in_a_pipe() -> None:
    stream = io.BytesIO()
    written = [VARIABLE.start, VARIABLE.write(Packet(0, np.zeros(8, bool), np.zeros(0, np.int64)))]
    for record in written:
        write_record(stream, record)
    stream.seek(0)
    assert [read_record(stream), read_record(stream), read_record(stream)] == [*written, None]
    with pytest.raises(BitstreamError, match="cut off: 1 bytes of a packet of 5"):
        read_record(io.BytesIO(b"\x05a"))
