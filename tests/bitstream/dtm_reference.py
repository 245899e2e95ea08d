"""A reader of `.dtm` files in plain Python integers, written from docs/bitstream.md alone.

It shares no line and no library with the package: what it reads, another language could. It trusts its input.
"""

import hashlib
import struct
import zlib
from bisect import bisect_right
from itertools import accumulate

LETTERS = "\0abcdefghijklmnopqrstuvwxyz0123456789.-"
SAMPLE_RATES = [None, 8000, 16000, 22050, 24000, 32000, 44100, 48000]
KEPT = [
    [4, 64, 26, 15, 12],
    [5, 45, 43, 30, 13],
    [11, 38, 51, 44, 19],
    [11, 28, 42, 45, 25],
    [11, 23, 33, 38, 26],
    [6, 17, 19, 21, 17],
]


class RangeDecoder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.next_word = 0
        self.low, self.width = 0, 2**64 - 1
        self.value = self.word() << 32 | self.word()

    def word(self) -> int:
        word = self.data[4 * self.next_word : 4 * self.next_word + 4].ljust(4, b"\0")
        self.next_word += 1
        return int.from_bytes(word, "big")

    def decode(self, frequencies: list[int]) -> int:
        cumulative = [0, *accumulate(frequencies)]
        assert cumulative[-1] == 2**24
        scale = self.width >> 24
        quantile = (self.value - self.low) % 2**64 // scale
        symbol = bisect_right(cumulative, quantile) - 1
        self.low = (self.low + scale * cumulative[symbol]) % 2**64
        self.width = scale * frequencies[symbol]
        if self.width < 2**32:
            self.low = self.low << 32 & (2**64 - 1)
            self.width <<= 32
            self.value = (self.value << 32 & (2**64 - 1)) | self.word()
        return symbol


def decode_mask(data: bytes, steps: int) -> list[bool]:
    decoder = RangeDecoder(data)
    weights = [[[kept, 80 - kept] for kept in row] for row in KEPT]
    mask, span, previous = [True], 1, 0
    while len(mask) < steps:
        cell = weights[min(span, 6) - 1][min(previous, 4)]
        probability = min(max(4096 * cell[0] // (cell[0] + cell[1]), 64), 4032)
        kept = decoder.decode([(4096 - probability) * 4096, probability * 4096]) == 1
        cell[0 if kept else 1] += 16
        if sum(cell) > 1536:
            cell[:] = [(cell[0] + 1) // 2, (cell[1] + 1) // 2]
        span, previous = (1, span) if kept else (span + 1, previous)
        mask.append(kept)
    return mask


def decode_tokens(
    data: bytes, tokens: int, class_of: list[int], transitions: list[list[int]], members: list[int]
) -> list[int]:
    decoder = RangeDecoder(data)
    codes_of = [[code for code, its in enumerate(class_of) if its == kind] for kind in range(len(transitions))]
    codes: list[int] = []
    kind = 0
    for _ in range(tokens):
        if len(transitions) > 1:
            kind = decoder.decode(transitions[kind])
        of_kind = codes_of[kind]
        codes.append(of_kind[decoder.decode([members[code] for code in of_kind]) if len(of_kind) > 1 else 0])
    return codes


def fingerprint(class_of: list[int], transitions: list[list[int]], members: list[int]) -> int:
    pairs = [frequency for row in transitions for frequency in row]
    stored = struct.pack(f"<{len(class_of)}h{len(pairs)}i{len(members)}i", *class_of, *pairs, *members)
    return int.from_bytes(hashlib.sha256(stored).digest()[:2], "big")


def read(data: bytes, statistics: dict | None = None) -> dict:
    assert data[:3] == b"DTM"
    assert data[3] >> 4 == 2
    mask_coded, tokens_coded, fixed_rate = data[3] & 1, data[3] & 2, data[3] & 4
    difference = int.from_bytes(data[-4:], "big") ^ zlib.crc32(data[:-4])
    assert difference == (fingerprint(**statistics) if tokens_coded else 0)
    number, name = int.from_bytes(data[4:10], "big"), ""
    for _ in range(9):
        number, letter = divmod(number, 40)
        name = LETTERS[letter] + name
    position = 16

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    token_bits = data[14] & 31
    sample_rate = SAMPLE_RATES[data[14] >> 5] or varint()
    hop_length = 4 * data[15] or varint()
    num_samples = varint()
    stride = None
    if fixed_rate:
        stride = data[position]
        position += 1
    mask_bytes = varint() if mask_coded else 0
    payload = data[position:-4]
    bit_string = "".join(f"{byte:08b}" for byte in payload)
    steps = -(-num_samples // hop_length)
    if fixed_rate:
        mask, used = [step % stride == 0 for step in range(steps)], 0
    elif mask_coded:
        mask, used = decode_mask(payload[:mask_bytes], steps), 8 * mask_bytes
    else:
        mask, used = [bit == "1" for bit in bit_string[:steps]], steps
    if tokens_coded:
        codes = decode_tokens(payload[-(-used // 8) :], sum(mask), **statistics)
    else:
        codes = [int(bit_string[used + i * token_bits :][:token_bits], 2) for i in range(sum(mask))]
    return {
        "model_id": f"{name.rstrip(LETTERS[0])}:{data[10:14].hex()}",
        "sample_rate": sample_rate,
        "hop_length": hop_length,
        "token_bits": token_bits,
        "stride": stride,
        "num_samples": num_samples,
        "mask": mask,
        "codes": codes,
    }
