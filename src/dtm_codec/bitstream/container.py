"""The `.dtm` file of one utterance: header, keep mask, codes, checksum. Specified in docs/bitstream.md.

Two modes. *raw* is what the paper counts (Eq. 5): one bit a step, b bits a token, one string of bits without a gap.
*compact* range codes mask and codes, each where that makes the file smaller, so that it is never larger than raw.

For each utterance and choice there is one string of bytes, and `read` takes no other.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from io import BytesIO
from itertools import product

import numpy as np
import numpy.typing as npt

from ..encoded import Encoded, Layout, Mode
from ..errors import BitstreamError
from . import bits, mask_coder, token_coder
from .header import Header, check_signature
from .token_coder import TokenModel

_CRC_BYTES = 4


@dataclass(frozen=True)
class FileInfo:
    """What a file says and costs; needs neither its model nor its token statistics.

    file_bytes x 8 = overhead_bytes x 8 + mask_bits + token_bits_written + padding_bits
    """

    layout: Layout
    num_samples: int
    model_id: str
    steps: int
    """N."""
    tokens: int
    """K."""
    mode: Mode
    """'compact' if anything in the file is range coded."""
    mask_bits: int
    """As written; N in fixed width, none at a fixed rate."""
    token_bits_written: int
    """As written; K x b in fixed width."""
    overhead_bytes: int
    """Header and checksum."""
    file_bytes: int

    @property
    def padding_bits(self) -> int:
        """Zeros that fill the last byte of a section in fixed width: 0 ... 7."""
        return 8 * (self.file_bytes - self.overhead_bytes) - self.mask_bits - self.token_bits_written


def write(encoded: Encoded, mode: Mode = "compact", token_model: TokenModel | None = None) -> bytes:
    """The file of an utterance; `token_model` defaults to the one registered for its model, if any."""
    if mode not in ("compact", "raw"):
        raise BitstreamError(f"mode = {mode!r}; allowed: 'compact', 'raw'")
    return _write(encoded, mode, token_model or token_coder.lookup(encoded.model_id))


def _write(encoded: Encoded, mode: Mode, token_model: TokenModel | None) -> bytes:
    """The smallest of the forms that `mode` allows; fixed width where range coding gains nothing."""
    layout = encoded.layout
    Header(layout, encoded.num_samples, encoded.model_id)  # first of all, can it be written?
    masks: list[bytes | None] = [None]
    tokens: list[bytes | None] = [None]
    if mode == "compact" and layout.stride is None:
        masks.append(mask_coder.encode(encoded.mask))
    if mode == "compact" and token_model is not None:
        _check_statistics(token_model, layout)
        tokens.append(token_coder.encode(encoded.codes, token_model))
    return min((_assemble(encoded, *coded) for coded in product(masks, tokens)), key=len)


def _check_statistics(token_model: TokenModel, layout: Layout) -> None:
    if token_model.token_bits != layout.token_bits:
        raise BitstreamError(
            f"token statistics for codes of {token_model.token_bits} bits; the stream's have {layout.token_bits}"
        )


def _assemble(encoded: Encoded, coded_mask: bytes | None, coded_tokens: bytes | None) -> bytes:
    """A file with each section range coded as given, or in fixed width for None."""
    layout = encoded.layout
    header = Header(
        layout,
        encoded.num_samples,
        encoded.model_id,
        mask_bytes=None if coded_mask is None else len(coded_mask),
        tokens_coded=coded_tokens is not None,
    )
    fixed_width = []
    if layout.stride is None and coded_mask is None:
        fixed_width.append(encoded.mask.view(np.uint8))
    if coded_tokens is None:
        fixed_width.append(bits.from_codes(encoded.codes, layout.token_bits))
    # what is in fixed width comes after a coded mask and before coded tokens
    data = header.to_bytes() + (coded_mask or b"") + bits.pack(*fixed_width) + (coded_tokens or b"")
    return data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def read(data: bytes, token_model: TokenModel | None = None) -> Encoded:
    """The utterance of a file; whatever `write` has not written raises `BitstreamError`.

    `token_model` defaults to the one registered for the file's model.
    """
    opened = _open(data)
    header = opened.header
    statistics = None
    if header.tokens_coded:
        statistics = token_model or token_coder.lookup(header.model_id)
        if statistics is None:
            raise BitstreamError(
                f"the tokens are coded with the statistics of model {header.model_id!r}: load that model first"
            )
        _check_statistics(statistics, header.layout)
        codes = token_coder.decode(opened.token_section, statistics, opened.tokens)
    else:
        width = header.layout.token_bits
        codes = bits.to_codes(bits.unpack(opened.token_section, opened.bit_offset, opened.tokens * width), width)
    encoded = Encoded(codes, opened.mask, header.num_samples, header.model_id, header.layout)
    if _write(encoded, opened.mode, statistics) != data:
        raise BitstreamError("not the bytes that its own content is written as: a file of another program, or forged")
    return encoded


def inspect(data: bytes) -> FileInfo:
    """What a file says and costs. The tokens themselves are not looked at, beyond the checksum."""
    opened = _open(data)
    header = opened.header
    if header.layout.stride is not None:
        mask_bits = 0
    else:
        mask_bits = header.steps if header.mask_bytes is None else 8 * header.mask_bytes
    return FileInfo(
        layout=header.layout,
        num_samples=header.num_samples,
        model_id=header.model_id,
        steps=header.steps,
        tokens=opened.tokens,
        mode=opened.mode,
        mask_bits=mask_bits,
        token_bits_written=(
            8 * len(opened.token_section) if header.tokens_coded else opened.tokens * header.layout.token_bits
        ),
        overhead_bytes=len(header.to_bytes()) + _CRC_BYTES,
        file_bytes=len(data),
    )


@dataclass(frozen=True)
class _Opened:
    """A file whose checksum, header, mask and lengths are sound."""

    header: Header
    mask: npt.NDArray[np.bool_]
    tokens: int
    token_section: bytes
    bit_offset: int
    """Where the tokens begin in their section: after a mask in fixed width there is no gap."""

    @property
    def mode(self) -> Mode:
        return "compact" if self.header.tokens_coded or self.header.mask_bytes is not None else "raw"


def _open(data: bytes) -> _Opened:
    """Check and take apart; nothing is allocated that the length of `data` does not vouch for."""
    check_signature(data)
    stream = BytesIO(data[:-_CRC_BYTES])
    if _checksum(stream.getvalue()) != data[-_CRC_BYTES:]:
        raise BitstreamError("damaged or cut off: the checksum does not match")
    header = Header.read(stream)
    payload, bit_offset = stream.read(), 0
    layout, steps = header.layout, header.steps
    if layout.stride is not None:
        tokens = -(-steps // layout.stride)
        _check_length(header, tokens, len(payload), 0)
        return _Opened(header, layout.fixed_mask(steps), tokens, payload, 0)
    if header.mask_bytes is not None:
        if header.mask_bytes > len(payload):
            raise BitstreamError(f"a mask of {header.mask_bytes} bytes in a payload of {len(payload)}")
        mask = mask_coder.decode(payload[: header.mask_bytes], steps)
        payload = payload[header.mask_bytes :]
    else:
        mask_bytes = bits.packed_bytes(steps)
        if mask_bytes > len(payload):
            raise BitstreamError(f"a mask of {steps} steps in a payload of {len(payload)} bytes")
        mask = bits.unpack(payload, 0, steps).view(np.bool_)
        if header.tokens_coded:
            payload = payload[mask_bytes:]
        else:
            bit_offset = steps
    tokens = int(np.count_nonzero(mask))
    _check_length(header, tokens, len(payload), bit_offset)
    return _Opened(header, mask, tokens, payload, bit_offset)


def _check_length(header: Header, tokens: int, length: int, bit_offset: int) -> None:
    if header.tokens_coded:
        token_coder.check_length(tokens, length)
    elif length != bits.packed_bytes(bit_offset + tokens * header.layout.token_bits):
        raise BitstreamError(f"{tokens} tokens of {header.layout.token_bits} bits in {length} bytes")
