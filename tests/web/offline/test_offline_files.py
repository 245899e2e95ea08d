"""The page's reader and writer of `.dtm` files, held to the package's: every byte, and every refusal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from dtm_examples import BROKEN_FILES, MODEL, MODELS, SIZE, make, seal, utterances
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_support import Node, ScriptError

from dtm_codec.bitstream import container
from dtm_codec.bitstream.header import MAX_STEPS, Header
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.errors import BitstreamError
from dtm_codec.layout import Layout

GOLDEN = Path(__file__).parents[2] / "bitstream" / "golden"
FACTS = json.loads((GOLDEN / "golden.json").read_text())
FILES = sorted(path.name for path in GOLDEN.glob("*.dtm"))

untimed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", autouse=True)
def statistics(node: Node) -> None:
    """Token statistics in Node, under the names "golden" and the size of the codebook."""
    golden = TokenModel.from_arrays({name: np.array(values) for name, values in FACTS["statistics"].items()})
    for name, model in {"golden": golden, **{str(size): model for size, model in MODELS.items()}}.items():
        arrays = {key: array.tolist() for key, array in model.to_arrays().items()}
        assert node.call("statistics", name, arrays) == model.fingerprint


@pytest.mark.parametrize("name", FILES)
def test_golden_files_are_read_and_written_to_the_byte(node: Node, name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    facts = FACTS[name.split("-")[0]]
    found = node.read(data, "golden")
    assert found.codes.tolist() == facts["codes"]
    assert "".join(str(int(kept)) for kept in found.mask) == facts["mask"]
    assert (found.num_samples, found.model_id) == (facts["num_samples"], facts["model_id"])
    mode = "raw" if name.endswith("-raw.dtm") else "compact"
    assert node.write(found, mode, "golden" if name.endswith("-compact.dtm") else None) == data


@given(st.data(), st.sampled_from(sorted(MODELS)), st.sampled_from(["raw", "compact"]), st.booleans())
@untimed
def test_every_utterance_has_the_same_file(
    node: Node, data: st.DataObject, size: int, mode: str, with_model: bool
) -> None:
    encoded = data.draw(utterances(codebook_size=size))
    written = encoded.to_bytes(mode, MODELS[size] if with_model else None)
    assert node.write(encoded, mode, str(size) if with_model else None) == written
    assert node.read(written, str(size)) == encoded


def agree(node: Node, data: bytes) -> None:
    """Both readers find the same utterance, or both refuse."""
    try:
        expected = Encoded.from_bytes(data, MODEL)
    except BitstreamError:
        with pytest.raises(ScriptError) as caught:
            node.read(data, str(SIZE))
        assert caught.value.kind == "BitstreamError"
    else:
        assert node.read(data, str(SIZE)) == expected


@given(st.binary(max_size=300), st.integers(0, 7), st.binary(max_size=80))
@untimed
def test_any_bytes(node: Node, data: bytes, flags: int, payload: bytes) -> None:
    agree(node, data)
    agree(node, seal(b"DTM" + data))
    start = b"DTM" + bytes([0x20 | flags]) + b"\x2c\x00\xe6\x4b\xed\xe0\xc0\xde\xc0\xde\x46\x28"
    agree(node, seal(start + payload))


@given(utterances(codebook_size=SIZE, max_steps=120), st.sampled_from(["raw", "compact"]), st.data())
@untimed
def test_damage(node: Node, encoded: Encoded, mode: str, data: st.DataObject) -> None:
    """A flipped bit, a lost end, bytes behind the end: with the old checksum, and with one that fits."""
    written = encoded.to_bytes(mode, MODEL)
    flipped = bytearray(written)
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    length = data.draw(st.integers(0, len(written) - 5))
    more = data.draw(st.binary(min_size=1, max_size=8))
    for damaged in (bytes(flipped), written[:length], written + more):
        agree(node, damaged)
        agree(node, seal(damaged[:-4]))
        agree(node, seal(damaged))


LAYOUT = Layout(16_000, 160, 6, None)


@pytest.mark.parametrize(("content", "named"), BROKEN_FILES)
def test_the_error_names_what_is_wrong(node: Node, content: bytes, named: str) -> None:
    with pytest.raises(ScriptError, match=named):
        node.read(content)


@pytest.mark.parametrize("mask_bytes", [None, 30])
def test_a_small_file_cannot_claim_a_long_utterance(node: Node, mask_bytes: int | None) -> None:
    header = Header(LAYOUT, MAX_STEPS * 160, "bomb:00000000", mask_bytes=mask_bytes)
    start = time.perf_counter()
    with pytest.raises(ScriptError):
        node.read(seal(header.to_bytes() + bytes(40)))
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("layout", [LAYOUT, Layout(16_000_000, 1, 6, None)], ids=["long", "many-steps"])
def test_the_page_takes_short_files_only(node: Node, layout: Layout) -> None:
    """A sound file, which the reader takes, but whose claim no one should have to compute."""
    mask = np.zeros(20_000, np.bool_)
    mask[0] = True
    data = make(mask, np.array([1]), layout).to_bytes("compact")
    assert node.read(data).mask.size == mask.size
    with pytest.raises(ScriptError, match=r"a file of (100|200) s; allowed on this page: up to 60 s"):
        node.read(data, max_seconds=60)
    assert node.read(data, max_seconds=300).mask.size == mask.size


def test_other_statistics_are_refused(node: Node) -> None:
    encoded = make(np.ones(300, np.bool_), np.zeros(300, np.int64), LAYOUT)
    data = encoded.to_bytes("compact", MODEL)
    assert container.read_header(data).tokens_coded
    with pytest.raises(ScriptError, match=f"statistics {MODEL.fingerprint:04x} of model 'test:01234567'; given"):
        node.read(data, "golden")
    with pytest.raises(ScriptError, match="give them"):
        node.read(data)
