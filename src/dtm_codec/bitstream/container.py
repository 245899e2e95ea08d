"""The `.dtm` file of one utterance: header, keep mask, codes, checksum. Specified in docs/bitstream.md.

Two modes. *raw* is what the paper counts (Eq. 5): one bit a step, b bits a token, one string of bits without a gap.
*compact* range codes mask and codes, each where that makes the file smaller, so that it is never larger than raw.

Tokens are range coded under the statistics of a model, which writer and reader pass in. The file carries a
fingerprint of them inside its checksum, so that other statistics are refused rather than read as other tokens.

For each utterance and choice there is one string of bytes, and `read` takes no other.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import BitstreamError
from ..layout import Layout
from . import bits, mask_coder, token_coder
from .claims import ClaimLimit
from .header import Header, check_signature
from .token_coder import TokenModel

Mode = Literal["compact", "raw"]

_CRC_BYTES = 4

MAX_BYTES = 64 << 20
"""No file is longer: 2^24 steps, all kept, with 24 bits a token, take 53 MB."""


class Content(NamedTuple):
    codes: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    num_samples: int
    model_id: str
    layout: Layout


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


class File(NamedTuple):
    """A file that was written, and what it costs."""

    data: bytes
    info: FileInfo


def write(content: Content, mode: Mode = "compact", token_model: TokenModel | None = None) -> File:
    """The smallest of the forms that `mode` allows; fixed width where range coding gains nothing."""
    if mode not in ("compact", "raw"):
        raise BitstreamError(f"mode = {mode!r}; allowed: 'compact', 'raw'")
    layout = content.layout
    Header(layout, content.num_samples, content.model_id)  # first of all, can it be written?
    masks: list[bytes | None] = [None]
    tokens: list[bytes | None] = [None]
    if mode == "compact" and layout.stride is None:
        masks.append(mask_coder.encode(content.mask))
    if mode == "compact" and token_model is not None:
        _check_width(token_model, layout)
        tokens.append(token_coder.encode(content.codes, token_model))
    return min((_assemble(content, token_model, *coded) for coded in product(masks, tokens)), key=lambda f: len(f.data))


def _assemble(
    content: Content, token_model: TokenModel | None, coded_mask: bytes | None, coded_tokens: bytes | None
) -> File:
    """A file with each section range coded as given, or in fixed width for None."""
    layout = content.layout
    header = Header(
        layout,
        content.num_samples,
        content.model_id,
        mask_bytes=None if coded_mask is None else len(coded_mask),
        tokens_coded=coded_tokens is not None,
    )
    fixed_width = []
    if layout.stride is None and coded_mask is None:
        fixed_width.append(content.mask.view(np.uint8))
    if coded_tokens is None:
        fixed_width.append(bits.from_codes(content.codes, layout.token_bits))
    # what is in fixed width comes after a coded mask and before coded tokens
    data = header.to_bytes() + (coded_mask or b"") + bits.pack(*fixed_width) + (coded_tokens or b"")
    checksum = zlib.crc32(data)
    if coded_tokens is not None and token_model is not None:
        checksum ^= token_model.fingerprint
    data += checksum.to_bytes(_CRC_BYTES, "big")
    return File(data, _info(header, content.codes.size, len(coded_tokens or b""), len(data)))


def _info(header: Header, tokens: int, coded_token_bytes: int, file_bytes: int) -> FileInfo:
    raw = header.layout.bits(tokens, header.steps)
    return FileInfo(
        layout=header.layout,
        num_samples=header.num_samples,
        model_id=header.model_id,
        steps=header.steps,
        tokens=tokens,
        mode=header.mode,
        mask_bits=raw.position if header.mask_bytes is None else 8 * header.mask_bytes,
        token_bits_written=8 * coded_token_bytes if header.tokens_coded else raw.content,
        overhead_bytes=len(header.to_bytes()) + _CRC_BYTES,
        file_bytes=file_bytes,
    )


def read(data: bytes, token_model: TokenModel | None = None, limit: ClaimLimit | None = None) -> Content:
    """What a file holds; whatever `write` has not written raises `BitstreamError`.

    token_model: of the model that wrote the file; only files with range coded tokens need it.
    limit: on the length that a file may claim; without it there is none.
    """
    opened = _open(data, limit)
    header = opened.header
    if header.tokens_coded:
        if token_model is None:
            raise BitstreamError(f"the tokens are coded with the statistics of model {header.model_id!r}: give them")
        if token_model.fingerprint != opened.fingerprint:
            raise BitstreamError(
                f"the tokens are coded with statistics {opened.fingerprint:04x} of model {header.model_id!r}; "
                f"given: {token_model.fingerprint:04x}, those of another model or export"
            )
        _check_width(token_model, header.layout)
        codes = token_coder.decode(opened.token_section, token_model, opened.tokens)
    else:
        width = header.layout.token_bits
        codes = bits.to_codes(bits.unpack(opened.token_section, opened.bit_offset, opened.tokens * width), width)
    content = Content(codes, opened.mask, header.num_samples, header.model_id, header.layout)
    if write(content, header.mode, token_model if header.tokens_coded else None).data != data:
        raise BitstreamError("not the bytes that its own content is written as: a file of another program, or forged")
    return content


def _check_width(token_model: TokenModel, layout: Layout) -> None:
    if token_model.token_bits != layout.token_bits:
        raise BitstreamError(
            f"token statistics for codes of {token_model.token_bits} bits; the stream's have {layout.token_bits}"
        )


def inspect(data: bytes, limit: ClaimLimit | None = None) -> FileInfo:
    """What a file says and costs. The tokens themselves are not looked at, beyond the checksum."""
    opened = _open(data, limit)
    return _info(opened.header, opened.tokens, len(opened.token_section), len(data))


@dataclass(frozen=True)
class _Opened:
    """A file whose checksum, header, mask and lengths are sound."""

    header: Header
    fingerprint: int
    """Of the token statistics that it was written with, if its tokens are range coded."""
    mask: npt.NDArray[np.bool_]
    tokens: int
    token_section: bytes
    bit_offset: int
    """Where the tokens begin in their section: after a mask in fixed width there is no gap."""


def read_header(data: bytes) -> Header:
    """What a file says before its payload, which is not looked at beyond the checksum."""
    return _open_header(data)[0]


def _open_header(data: bytes) -> tuple[Header, int, bytes]:
    """Header, fingerprint of the token statistics, and payload."""
    check_signature(data)
    stream = BytesIO(data[:-_CRC_BYTES])
    fingerprint = zlib.crc32(data[:-_CRC_BYTES]) ^ int.from_bytes(data[-_CRC_BYTES:], "big")
    header = Header.read(stream) if fingerprint <= token_coder.MAX_FINGERPRINT else None
    if header is None or (fingerprint and not header.tokens_coded):
        raise BitstreamError("damaged or cut off: the checksum does not match")
    return header, fingerprint, stream.read()


def _open(data: bytes, limit: ClaimLimit | None) -> _Opened:
    """Check and take apart. Nothing is allocated that is out of proportion to the length of `data`."""
    header, fingerprint, payload = _open_header(data)
    if limit is not None:
        limit.check(header, len(data))  # before the mask is decoded, which takes its time
    opened = _taken_apart(header, fingerprint, payload)
    if limit is not None:
        limit.check(header, len(data), opened.tokens)
    return opened


def _taken_apart(header: Header, fingerprint: int, payload: bytes) -> _Opened:
    bit_offset = 0
    layout, steps = header.layout, header.steps
    if layout.stride is not None:
        tokens = -(-steps // layout.stride)
        _check_length(header, tokens, len(payload), 0)
        return _Opened(header, fingerprint, layout.fixed_mask(steps), tokens, payload, 0)
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
        if not mask[0]:
            raise BitstreamError("the first step is masked; it must be kept")
        if header.tokens_coded:
            payload = payload[mask_bytes:]
        else:
            bit_offset = steps
    tokens = int(np.count_nonzero(mask))
    _check_length(header, tokens, len(payload), bit_offset)
    return _Opened(header, fingerprint, mask, tokens, payload, bit_offset)


def _check_length(header: Header, tokens: int, length: int, bit_offset: int) -> None:
    if header.tokens_coded:
        token_coder.check_length(tokens, length)
    elif length != bits.packed_bytes(bit_offset + tokens * header.layout.token_bits):
        raise BitstreamError(f"{tokens} tokens of {header.layout.token_bits} bits in {length} bytes")
