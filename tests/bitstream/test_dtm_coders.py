"""Laws of the range coder, the mask model and the token statistics."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.bitstream import mask_coder, range_coder, token_coder
from dtm_codec.bitstream.token_coder import MAX_FREQUENCY, TokenModel
from dtm_codec.errors import BitstreamError, ModelError


@st.composite
def tables(draw: st.DrawFn) -> list[int]:
    """Frequencies that sum to 2^24, from even to extreme."""
    cuts = draw(st.lists(st.integers(1, range_coder.TOTAL - 1), min_size=1, max_size=6, unique=True))
    return np.diff([0, *sorted(cuts), range_coder.TOTAL]).tolist()


def encode(symbols: list[int], frequencies: list[list[int]]) -> bytes:
    encoder = range_coder.Encoder()
    for symbol, row in zip(symbols, frequencies, strict=True):
        encoder.encode(symbol, range_coder.table(row))
    return encoder.finish()


def decode(data: bytes, frequencies: list[list[int]]) -> list[int]:
    with range_coder.decoding(data) as read:
        return [read(range_coder.table(row)) for row in frequencies]


@st.composite
def messages(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    frequencies = draw(st.lists(tables(), max_size=40))
    return [draw(st.integers(0, len(row) - 1)) for row in frequencies], frequencies


@given(messages(), st.binary(max_size=12))
def test_symbols_survive_whatever_follows_them(message: tuple[list[int], list[list[int]]], more: bytes) -> None:
    symbols, frequencies = message
    assert decode(encode(symbols, frequencies) + more, frequencies) == symbols


@given(messages())
def test_length_is_the_information_and_at_most_ten_bits(message: tuple[list[int], list[list[int]]]) -> None:
    symbols, frequencies = message
    parts = (row[symbol] / range_coder.TOTAL for symbol, row in zip(symbols, frequencies, strict=True))
    information = -sum(map(math.log2, parts))
    length = 8 * len(encode(symbols, frequencies))
    assert information <= length + 1e-6
    assert length <= information + 10 + 0.01 * len(symbols) if symbols else length == 0


@given(messages())
def test_no_shorter_bytes_would_do(message: tuple[list[int], list[list[int]]]) -> None:
    symbols, frequencies = message
    data = encode(symbols, frequencies)
    for shorter in {data[:-1], (int.from_bytes(data[:-1], "big") + 1).to_bytes(len(data), "big")[1:]} if data else ():
        outcomes = []
        for more in (bytes(12), b"\xff" * 12):
            try:
                outcomes.append(decode(shorter + more, frequencies))
            except BitstreamError:
                outcomes.append(None)
        assert outcomes != [symbols, symbols]


def test_carries_reach_words_that_were_held_back() -> None:
    """Symbols just below and above the middle keep the coder undecided for long."""
    row = [range_coder.TOTAL // 2 - 1, 2, range_coder.TOTAL // 2 - 1]
    for last in range(3):
        symbols = [1] * 60 + [last]
        assert decode(encode(symbols, [row] * 61), [row] * 61) == symbols
        symbols = [0] + [2] * 400 + [last]
        assert decode(encode(symbols, [row] * 402), [row] * 402) == symbols


@given(tables(), st.data())
def test_frequencies_reach_the_coder_as_they_are(row: list[int], data: st.DataObject) -> None:
    """One symbol of frequency f takes the f 2^40-ths of the range that docs/bitstream.md says."""
    symbol = data.draw(st.integers(0, len(row) - 1))
    encoder = range_coder.Encoder()
    encoder.encode(symbol, range_coder.table(row))
    scale = (2**64 - 1) >> 24
    words, (low, width) = encoder._coder.pos()
    scaled = 2 ** (32 * words)
    assert (low, width) == (sum(row[:symbol]) * scale * scaled % 2**64, row[symbol] * scale * scaled % 2**64)


@given(st.lists(st.booleans(), max_size=600).map(lambda rest: np.array([True, *rest])))
def test_any_mask_survives(mask: np.ndarray) -> None:
    data = mask_coder.encode(mask)
    assert np.array_equal(mask_coder.decode(data, mask.size), mask)


@pytest.mark.parametrize("steps", [1, 2, 100, 5_000, 50_000])
@pytest.mark.parametrize("period", [1, 2, 1_000_000])
def test_the_most_predictable_mask_stays_within_the_bound(steps: int, period: int) -> None:
    mask = np.arange(steps) % period == 0
    data = mask_coder.encode(mask)
    assert steps - 1 <= mask_coder.MAX_STEPS_PER_BYTE * len(data)
    assert np.array_equal(mask_coder.decode(data, steps), mask)


def test_bounds_follow_from_the_least_costs() -> None:
    one = 1 << mask_coder.PROBABILITY_BITS
    step = math.log2(one / (one - mask_coder.MIN_PROBABILITY))
    assert math.ceil(8 / step) == mask_coder.MAX_STEPS_PER_BYTE
    token = math.log2(range_coder.TOTAL / MAX_FREQUENCY)
    assert math.ceil(8 / token) == token_coder.MAX_TOKENS_PER_BYTE


def test_a_tokens_bound_holds_at_its_edge() -> None:
    model = TokenModel.from_counts([1.0, 0.0])
    codes = np.zeros(10_000, dtype=np.int64)
    data = token_coder.encode(codes, model)
    assert codes.size <= token_coder.MAX_TOKENS_PER_BYTE * len(data)
    assert np.array_equal(token_coder.decode(data, model, codes.size), codes)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50).filter(lambda row: sum(row) > 0))
def test_any_counts_give_frequencies_within_their_limits(counts: list[float]) -> None:
    frequencies = TokenModel.from_counts(counts).members
    assert frequencies.sum() == range_coder.TOTAL
    assert 1 <= frequencies.min() <= frequencies.max() <= MAX_FREQUENCY


GOOD = TokenModel.from_counts(np.arange(1, 9), np.arange(1, 5).reshape(2, 2), np.arange(8) % 2)


def test_statistics_survive_storage_as_arrays() -> None:
    arrays = TokenModel.from_arrays(GOOD.to_arrays()).to_arrays()
    assert all(np.array_equal(arrays[name], array) for name, array in GOOD.to_arrays().items())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"transitions": GOOD.transitions[0]}, "shapes"),
        ({"transitions": GOOD.transitions[:1]}, "shapes"),
        ({"transitions": GOOD.transitions - 1}, "with sum"),
        ({"members": GOOD.members[:7]}, "shapes"),
        ({"members": GOOD.members * 0}, "0 ... 0"),
        ({"members": GOOD.members + np.eye(8, dtype=np.int32)[0]}, "with sum"),
        ({"class_of": np.full(8, 2, dtype=np.int16)}, "1 classes"),
        ({"class_of": np.zeros(9, dtype=np.int16)}, "shapes"),
    ],
)
def test_unsound_statistics_are_refused(change: dict, named: str) -> None:
    with pytest.raises(ModelError, match=named):
        TokenModel.from_arrays(GOOD.to_arrays() | change)


@pytest.mark.parametrize("counts", [[0, 0], [1, -1], [1, np.nan], []])
def test_impossible_counts_are_refused(counts: list[float]) -> None:
    with pytest.raises(ModelError):
        TokenModel.from_counts(counts)


def markov(length: int, generator: np.random.Generator) -> np.ndarray:
    """Of 32 codes, each is followed by one of the 8 in the next quarter."""
    return (8 * np.arange(length) + generator.integers(8, size=length)) % 32


def test_fit_finds_the_classes_that_predict() -> None:
    generator = np.random.default_rng(0)
    corpus = [markov(200, generator) for _ in range(60)]
    codebook = np.eye(4)[np.arange(32) // 8] + 0.1 * generator.standard_normal((32, 4))
    model = TokenModel.fit(corpus, 32, codebook, classes=(1, 4, 16))
    assert len(np.unique(model.class_of[:8])) < len(model.transitions)
    new = markov(2_000, generator)
    assert 8 * len(token_coder.encode(new, model)) < 3.25 * new.size  # what is certain still costs 0.19 bits
    assert 8 * len(token_coder.encode(new, TokenModel.fit(corpus, 32))) > 4.9 * new.size


def test_fit_takes_one_class_when_more_do_not_help() -> None:
    generator = np.random.default_rng(0)
    codebook = generator.standard_normal((32, 4))
    assert len(TokenModel.fit(generator.integers(32, size=(40, 100)), 32, codebook).transitions) == 1
    assert len(TokenModel.fit([np.array([1, 2, 3])], 32, codebook).transitions) == 1


@pytest.mark.parametrize(
    ("corpus", "options", "named"),
    [
        ([], {}, "0 tokens"),
        ([np.array([32])], {}, "32"),
        ([np.array([1])], {"classes": (1025,)}, "1025"),
        ([np.array([1])], {"codebook": np.zeros((31, 2))}, "31 vectors"),
    ],
)
def test_fit_refuses_what_it_cannot_count(corpus: list, options: dict, named: str) -> None:
    with pytest.raises(ModelError, match=named):
        TokenModel.fit(corpus, 32, **options)


def test_the_mean_of_token_statistics_is_what_such_tokens_take() -> None:
    assert TokenModel.from_counts(np.ones(1024)).mean_bits == pytest.approx(10, abs=1e-3)
    draw = np.random.default_rng(0)
    counts, classes = draw.random(64) ** 3 + 0.01, np.arange(64) % 4
    follows = np.array([[8, 1, 1, 1], [1, 6, 1, 4], [1, 1, 9, 1], [2, 1, 1, 2]])
    model = TokenModel.from_counts(counts, follows, classes)
    codes, kind = [], 0
    for _ in range(20_000):
        kind = draw.choice(4, p=model.transitions[kind] / 2**24)
        members = model.codes_of[kind]
        codes.append(draw.choice(members, p=model.members[members] / 2**24))
    assert 8 * len(token_coder.encode(np.array(codes), model)) / len(codes) == pytest.approx(model.mean_bits, rel=0.01)
