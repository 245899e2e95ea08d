"""Utterances of every kind, for property tests."""

import zlib

import numpy as np
from hypothesis import strategies as st

from dtm_codec.bitstream.header import Header
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.layout import Layout

NAMES = st.from_regex(r"[a-z0-9.\-]{1,9}:[0-9a-f]{8}", fullmatch=True)


def make(
    mask: np.ndarray, codes: np.ndarray, layout: Layout, missing: int = 0, model_id: str = "test:01234567"
) -> Encoded:
    """An utterance whose last step lacks `missing` samples."""
    return Encoded(codes, mask, mask.size * layout.hop_length - missing, model_id, layout)


@st.composite
def layouts(draw: st.DrawFn, token_bits: int | None = None) -> Layout:
    return Layout(
        sample_rate=draw(st.sampled_from([8_000, 16_000, 22_050, 24_000, 44_100, 48_000]) | st.integers(1, 2**24 - 1)),
        hop_length=draw(st.sampled_from([100, 160, 320]) | st.integers(1, 2**16 - 1)),
        token_bits=token_bits or draw(st.integers(1, 24)),
        stride=draw(st.none() | st.sampled_from([1, 2, 3]) | st.integers(1, 255)),
    )


@st.composite
def utterances(draw: st.DrawFn, codebook_size: int | None = None, max_steps: int = 400) -> Encoded:
    """Any utterance at all; with `codebook_size`, its codes are below it."""
    layout = draw(layouts(None if codebook_size is None else (codebook_size - 1).bit_length()))
    steps = draw(st.integers(1, max_steps))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    if layout.stride is not None:
        mask = layout.fixed_mask(steps)
    elif draw(st.booleans()):  # a rhythm, which compresses
        mask = np.arange(steps) % draw(st.integers(1, 9)) == 0
    else:
        mask = generator.random(steps) < draw(st.floats(0, 1))
        mask[0] = True
    size = codebook_size or 1 << layout.token_bits
    skew = draw(st.sampled_from([1, 1, 3, 30]))
    codes = (generator.random(int(mask.sum())) ** skew * size).astype(np.int64)
    return make(mask, codes, layout, draw(st.integers(0, layout.hop_length - 1)), draw(NAMES))


def skewed_model(codebook_size: int, classes: int = 3) -> TokenModel:
    """Statistics that favour small codes, as `utterances` may."""
    classes = min(classes, codebook_size)
    transitions = 1 / (1 + np.arange(classes)) ** np.linspace(0.5, 2, classes)[:, None]
    return TokenModel.from_counts(
        1 / (1 + np.arange(codebook_size)), transitions, np.arange(codebook_size) * classes // codebook_size
    )


MODELS = {
    2: skewed_model(2, 1),
    3: skewed_model(3, 3),
    7: skewed_model(7),
    64: skewed_model(64),
    1_000: skewed_model(1_000),
}
"""By codebook size; with one class, with one code a class, and with several of both."""


SIZE = 64
MODEL = MODELS[SIZE]


def seal(content: bytes) -> bytes:
    """With a checksum that fits, also the statistics if the tokens are range coded: what an attacker would send."""
    fingerprint = MODEL.fingerprint if content[3:] and content[3] & 2 else 0
    return content + (zlib.crc32(content) ^ fingerprint).to_bytes(4, "big")


_LAYOUT = Layout(16_000, 160, 6, None)

BROKEN_FILES = [
    (b"", "not a .dtm file"),
    (b"RIFF\0\0\0\0WAVE", "RIF|52 49 46"),
    (b"DTM", "checksum"),
    (b"DTM\x30" + bytes(20), "version 3"),
    (b"DTM\x10" + bytes(20), r"version 1: dtm-codec 0\.1 reads it"),
    (seal(b"DTM\x20"), "cut off in the header"),
    (seal(b"DTM\x28" + bytes(20)), "flags 0x8"),
    (seal(b"DTM\x25" + bytes(20)), "flags 0x5"),
    (seal(b"DTM\x20" + b"\xff" * 10 + b"\x46\x28\x01\x80\x00"), "model id"),
    (seal(Header(_LAYOUT, 160, "a:00000000").to_bytes()[:-2] + b"\xa0\x81\x00" + b"\x80"), "too long"),
    (seal(Header(_LAYOUT, 160, "a:00000000").to_bytes()), "1 steps in a payload of 0 bytes"),
    (seal(Header(_LAYOUT, 160, "a:00000000").to_bytes() + b"\x80\0"), "1 tokens of 6 bits in 2 bytes"),
    (seal(Header(_LAYOUT, 160, "a:00000000").to_bytes() + b"\0"), "first step"),
    (seal(Header(_LAYOUT, 160, "a:00000000", mask_bytes=9).to_bytes() + b"\0"), "mask of 9 bytes"),
]
"""Content, and what the error must say of it."""
