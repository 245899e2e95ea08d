import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.corpus import Scheme, flatten, unflatten
from dtm_codec.corpus.errors import CorpusError

NAMES = ("interleaved", "joint", "parallel")

schemes = st.builds(
    Scheme, name=st.sampled_from(NAMES), codebook_size=st.integers(1, 5), max_duration=st.integers(1, 4)
)


@st.composite
def utterances(draw):
    """Small codebooks and caps, so that equal neighbours and split spans are common."""
    scheme = draw(schemes)
    pairs = draw(st.lists(st.tuples(st.integers(0, scheme.codebook_size - 1), st.integers(1, 13)), max_size=12))
    tokens, durations = np.array(pairs, np.int64).reshape(-1, 2).T
    return scheme, tokens, durations


@given(utterances())
def test_flattening_loses_nothing(utterance):
    scheme, tokens, durations = utterance
    symbols = flatten(tokens, durations, scheme)
    for stream, size in zip(np.atleast_2d(symbols), scheme.vocabulary_sizes, strict=True):
        assert ((stream >= 0) & (stream < size)).all()
    tokens_back, durations_back = unflatten(symbols, scheme)
    np.testing.assert_array_equal(tokens_back, tokens)
    np.testing.assert_array_equal(durations_back, durations)


@given(schemes, st.lists(st.integers(0, 24), max_size=12))
def test_whatever_a_language_model_says_is_read_or_refused(scheme, symbols):
    sequence = np.array(symbols, np.int64)
    if scheme.name == "parallel":
        sequence = np.stack([sequence, sequence % scheme.cap])
    try:
        tokens, durations = unflatten(sequence, scheme)
    except CorpusError:
        return
    assert tokens.shape == durations.shape
    assert (durations >= 1).all()
    again = unflatten(flatten(tokens, durations, scheme), scheme)
    np.testing.assert_array_equal(again, (tokens, durations))


def test_interleaved_is_token_then_duration():
    np.testing.assert_array_equal(flatten([7, 3], [1, 2], Scheme("interleaved", 10, 4)), [7, 10, 3, 11])


def test_joint_is_the_index_of_varstok():
    np.testing.assert_array_equal(flatten([7, 3], [1, 4], Scheme("joint", 10, 4)), [7, 33])


def test_joint_splits_a_span_above_the_cap():
    np.testing.assert_array_equal(flatten([7], [10], Scheme("joint", 10, 4)), [37, 37, 17])


def test_joint_tells_a_split_token_from_two_equal_ones():
    scheme = Scheme("joint", 10, 4)
    np.testing.assert_array_equal(flatten([7], [6], scheme), [37, 17])
    np.testing.assert_array_equal(flatten([7, 7], [4, 2], scheme), [37, 40, 17])


def test_parallel_streams_have_equal_length():
    np.testing.assert_array_equal(flatten([7, 3], [5, 1], Scheme("parallel", 10, 4)), [[7, 10, 3], [3, 0, 0]])


def test_vocabulary_sizes():
    assert Scheme("interleaved", 16_384, 64).vocabulary_sizes == (16_448,)
    assert Scheme("joint", 4_096, 4).vocabulary_sizes == (16_385,)
    assert Scheme("parallel", 16_384, 64).vocabulary_sizes == (16_385, 64)


@pytest.mark.parametrize("name", NAMES)
def test_a_scheme_can_be_given_by_name(name):
    tokens, durations = unflatten(flatten([5, 5, 9], [4, 200, 1], name), name)
    assert tokens.tolist() == [5, 5, 9]
    assert durations.tolist() == [4, 200, 1]


@pytest.mark.parametrize(
    ("tokens", "durations", "scheme", "message"),
    [
        ([1], [1], "huffman", "huffman"),
        ([1, 2], [1], "joint", r"\(2,\)"),
        ([16_384], [1], "joint", "16384"),
        ([1], [0], "joint", "durations 0"),
        ([1.5], [1], "joint", "float64"),
    ],
)
def test_what_cannot_be_flattened_is_refused_by_value(tokens, durations, scheme, message):
    with pytest.raises(CorpusError, match=message):
        flatten(tokens, durations, scheme)


@pytest.mark.parametrize("symbols", [[10, 1], [1], [1, 2, 11], [1, 14]])
def test_broken_interleaving_is_refused(symbols):
    with pytest.raises(CorpusError):
        unflatten(symbols, Scheme("interleaved", 10, 4))


@pytest.mark.parametrize("scheme", [Scheme("joint", 10, 4), Scheme("interleaved", 10, 4)])
def test_one_stream_is_not_taken_for_two(scheme):
    with pytest.raises(CorpusError, match=r"allowed: \(L,\)"):
        unflatten([[1, 2], [1, 2]], scheme)
