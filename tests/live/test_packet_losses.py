"""Packets that are lost, late, doubled, out of order, of another stream: time goes on, nothing breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from live_support import encode_in, tiny, usual_tau

from dtm_codec import DTMCodec
from dtm_codec.errors import BitstreamError, DTMCodecError
from dtm_codec.live.packets import Packet, StreamFormat
from dtm_codec.nn.timeline import Timeline


@pytest.fixture(scope="module")
def codec() -> DTMCodec:
    return tiny()


@pytest.fixture(scope="module")
def stream(codec: DTMCodec, speech: np.ndarray) -> tuple[bytes, list[bytes]]:
    encoder = codec.stream_encoder(tau=usual_tau(codec, speech), packet_ms=80)
    return encoder.start, encode_in([speech], encoder)


def concealed(codec: DTMCodec, start: bytes, packets: list[bytes | None]) -> np.ndarray:
    """What the network makes at once of a stream in which the tokens of lost packets are masked."""
    form, network = StreamFormat.from_start(start), codec.network
    read = [None if p is None else form.read(p) for p in packets]
    mask = torch.from_numpy(np.concatenate([np.zeros(form.steps, bool) if p is None else p.mask for p in read]))
    codes = torch.from_numpy(np.concatenate([p.codes for p in read if p is not None]))
    timeline = Timeline.consecutive((mask.numel(),), mask.device)
    with torch.no_grad():
        h = network.dec1(network.quantizer.decode(codes), timeline.kept(mask))
        frames = network.head(network.dec2(network.up(h, mask), timeline), timeline.positions).frames
        return network.head.synthesize(frames[None])[0].numpy()


def test_lost_steps_are_masked_steps(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    arrived = [None if i in (3, 4, 9, 15) else packet for i, packet in enumerate(packets)]
    expected = concealed(codec, start, arrived)
    by_gap, by_name = codec.stream_decoder(start), codec.stream_decoder(start)
    gaps = np.concatenate([by_gap.push(packet) for packet in arrived if packet is not None])
    named = np.concatenate([by_name.lost() if p is None else by_name.push(p) for p in arrived])
    assert np.array_equal(gaps, named)
    assert np.abs(gaps - expected[: gaps.size]).max() < 1e-4
    assert gaps.size == 32_000
    assert (by_gap.received, by_gap.given_up, by_gap.dropped) == (len(packets) - 4, 4, 0)


def test_twice_and_late_are_dropped_and_out_of_order_waits(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    in_order = codec.stream_decoder(start)
    expected = np.concatenate([in_order.push(packet) for packet in packets])
    doubled = codec.stream_decoder(start)
    assert np.array_equal(np.concatenate([doubled.push(p) for packet in packets for p in (packet, packet)]), expected)
    assert doubled.dropped == len(packets)
    swapped = packets.copy()
    swapped[5], swapped[6], swapped[7] = packets[7], packets[5], packets[6]
    patient = codec.stream_decoder(start, wait=2)
    assert np.array_equal(np.concatenate([patient.push(packet) for packet in swapped]), expected)
    assert (patient.given_up, patient.dropped) == (0, 0)
    hasty = codec.stream_decoder(start)
    assert np.concatenate([hasty.push(packet) for packet in swapped]).size == expected.size
    assert (hasty.given_up, hasty.dropped) == (2, 2)


def test_the_first_packets_are_waited_for_too(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    in_order, patient = codec.stream_decoder(start), codec.stream_decoder(start, wait=2)
    expected = np.concatenate([in_order.push(packet) for packet in packets])
    swapped = [packets[2], packets[0], packets[1], *packets[3:]]
    assert np.array_equal(np.concatenate([patient.push(packet) for packet in swapped]), expected)
    assert (patient.received, patient.given_up, patient.dropped) == (len(packets), 0, 0)


def test_a_stream_can_be_joined_in_the_middle_and_is_soon_the_same(speech: np.ndarray) -> None:
    codec = tiny("vfr-50", window=8)  # its head has no phase to carry along
    encoder = codec.stream_encoder(tau=usual_tau(codec, speech), packet_ms=40)
    packets = encode_in([speech], encoder)
    whole, late = (codec.stream_decoder(encoder.start) for _ in range(2))
    expected = np.concatenate([whole.push(packet) for packet in packets])[10 * 640 :]
    joined = np.concatenate([late.push(packet) for packet in packets[10:]])
    assert joined.size == expected.size == 32_000 - 10 * 640
    different = np.flatnonzero(np.abs(joined - expected) > 1e-4)
    assert different.size  # the first steps miss what was before
    assert different.max() < 16_000  # two layers of 8 tokens, then two of 8 steps


def test_a_long_loss_is_silence_of_its_length_and_costs_nothing(
    codec: DTMCodec, stream: tuple[bytes, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, packets = stream
    form = StreamFormat.from_start(start)
    far, next_to_it = (Packet(n, np.eye(1, 8, dtype=bool)[0], np.array([5])) for n in (999, 1000))
    decoder = codec.stream_decoder(start)
    computed = 0
    forward = codec.network.head.forward

    def counted(x: torch.Tensor, *arguments: object, **more: object) -> object:
        nonlocal computed
        computed += x.shape[0]
        return forward(x, *arguments, **more)

    monkeypatch.setattr(codec.network.head, "forward", counted)
    sent = (packets[0], form.write(far), form.write(next_to_it))
    samples = np.concatenate([*map(decoder.push, sent), decoder.flush()])
    assert samples.size == 1001 * 1280
    assert not samples[4 * 16_000 : -1280].any()
    assert computed < 300  # steps: 2 s and the two packets


def test_one_packet_out_of_nowhere_does_not_derail_a_stream(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    form = StreamFormat.from_start(start)
    plain, bothered = codec.stream_decoder(start), codec.stream_decoder(start)
    for i, packet in enumerate(packets):
        forged = form.write(Packet((i * 331 + 500) % 1500 + 200, np.ones(8, bool), np.arange(8)))
        assert bothered.push(forged).size == 0 or i == 0
        if i == 0:  # before the first packet there is no telling; begin again
            bothered = codec.stream_decoder(start)
        assert np.array_equal(bothered.push(packet), plain.push(packet))


def test_a_sender_that_begins_anew_is_heard(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    form = StreamFormat.from_start(start)
    decoder = codec.stream_decoder(start)
    mask = np.eye(1, 8, dtype=bool)[0]
    for n in range(300, 303):
        decoder.push(form.write(Packet(n, mask, np.array([n]))))
    heard = np.concatenate([decoder.push(packet) for packet in packets])
    assert decoder.dropped == 1  # the first of the new ones, which no other confirmed yet
    assert heard.size >= 32_000 - 1280
    assert heard.size <= 32_000 + 3 * 1280


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_any_packets_in_any_order_are_played_or_refused(
    codec: DTMCodec, stream: tuple[bytes, list[bytes]], data: st.DataObject
) -> None:
    start, packets = stream
    form = StreamFormat.from_start(start)
    decoder = codec.stream_decoder(start, wait=data.draw(st.integers(0, 3)))
    sent = samples = 0
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["sound", "sealed", "bytes", "lost"]))
        if kind == "lost":
            samples += decoder.lost(data.draw(st.integers(0, 3))).size
            continue
        packet = data.draw(st.sampled_from(packets) if kind == "sound" else st.binary(max_size=40))
        if kind == "sealed":  # with a check that fits
            flags = data.draw(st.integers(0, 0xFFF)) << 4
            packet = (flags << 8 | form._check(flags, packet)).to_bytes(3, "big") + packet
        try:
            played = decoder.push(packet)
        except BitstreamError:
            continue
        sent += 1
        assert np.isfinite(played).all()
        samples += played.size
    samples += decoder.flush().size
    assert samples <= 1280 * (decoder.received + decoder.given_up)
    assert decoder.received + decoder.dropped <= sent


def test_sequence_numbers_begin_again(codec: DTMCodec) -> None:
    form = StreamFormat(codec.model_id, codec.layout, 8)
    decoder = codec.stream_decoder(form.start)
    mask = np.eye(1, 8, dtype=bool)[0]
    sent = [form.write(Packet(n % 2048, mask, np.array([n % 100]))) for n in (2046, 2047, 2048, 2050, 2049, 2051)]
    samples = np.concatenate([*(decoder.push(packet) for packet in sent), decoder.flush()])
    assert samples.size == 6 * 1280
    assert (decoder.received, decoder.given_up, decoder.dropped) == (5, 1, 1)


def test_bytes_of_others_change_nothing(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    other = tiny(norm_eps=2e-2)
    foreign = StreamFormat(other.model_id, other.layout, 8).write(Packet(1, np.zeros(8, bool), np.zeros(0, np.int64)))
    plain, bothered = codec.stream_decoder(start), codec.stream_decoder(start)
    for packet in packets:
        for hostile in (foreign, packet[:-1], packet + b"\0", b"", b"\0" * 300):
            with pytest.raises(BitstreamError):
                bothered.push(hostile)
        assert np.array_equal(plain.push(packet), bothered.push(packet))


def test_a_code_that_the_codebook_has_not_is_refused(speech: np.ndarray) -> None:
    codec = tiny("s-ffr-fsq")  # 64 000 codes of 16 bits
    form = StreamFormat(codec.model_id, codec.layout, 4)
    packet = form.write(Packet(0, np.array([True, False] * 2), np.array([1, 64_000])))
    with pytest.raises(BitstreamError, match=r"code 64000; allowed: 0 \.\.\. 63999"):
        codec.stream_decoder(form.start).push(packet)


def test_after_the_end_nothing_is_played(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    decoder = codec.stream_decoder(start)
    for packet in packets:
        decoder.push(packet)
    assert decoder.push(packets[0]).size == decoder.lost(5).size == decoder.flush().size == 0
    for wrong in (-1, 2048, 1.5, True):
        with pytest.raises(DTMCodecError, match="allowed"):
            decoder.lost(wrong)  # type: ignore[arg-type]


def test_lost_before_anything_came_is_silence(codec: DTMCodec, stream: tuple[bytes, list[bytes]]) -> None:
    start, packets = stream
    decoder = codec.stream_decoder(start)
    silence = decoder.lost(3)
    assert silence.size == 3 * 1280
    assert not silence.any()
    rest = np.concatenate([decoder.push(packet) for packet in packets[3:]])
    assert rest.size == 32_000 - 3 * 1280
