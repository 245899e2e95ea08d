"""Files of version 2 stay readable, here and by a program that has only docs/bitstream.md."""

import json
from pathlib import Path

import dtm_reference
import numpy as np
import pytest
from dtm_examples import MODELS, utterances
from hypothesis import given
from hypothesis import strategies as st

from dtm_codec.bitstream import mask_coder
from dtm_codec.bitstream.header import SAMPLE_RATES
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.layout import Layout

GOLDEN = Path(__file__).with_name("golden")
FACTS = json.loads((GOLDEN / "golden.json").read_text())
STATISTICS = TokenModel.from_arrays({name: np.array(values) for name, values in FACTS["statistics"].items()})
FILES = sorted(path.name for path in GOLDEN.glob("*.dtm"))


def expected(name: str) -> Encoded:
    facts = FACTS[name.split("-")[0]]
    layout = Layout(*(facts[field] for field in ("sample_rate", "hop_length", "token_bits", "stride")))
    mask = np.array([bit == "1" for bit in facts["mask"]])
    return Encoded(np.array(facts["codes"]), mask, facts["num_samples"], facts["model_id"], layout)


def test_there_is_a_file_of_every_form() -> None:
    flags = {(GOLDEN / name).read_bytes()[3] for name in FILES}
    assert flags == {0x20, 0x21, 0x23, 0x24, 0x26}


@pytest.mark.parametrize("name", FILES)
def test_golden_file_is_read(name: str) -> None:
    assert Encoded.from_bytes((GOLDEN / name).read_bytes(), STATISTICS) == expected(name)


@pytest.mark.parametrize("name", FILES)
def test_golden_file_is_written_to_the_byte(name: str) -> None:
    mode = "raw" if name.endswith("-raw.dtm") else "compact"
    statistics = STATISTICS if name.endswith("-compact.dtm") else None
    assert expected(name).to_bytes(mode, statistics) == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_golden_file_is_read_by_the_reference(name: str) -> None:
    facts = FACTS[name.split("-")[0]]
    found = dtm_reference.read((GOLDEN / name).read_bytes(), FACTS["statistics"])
    assert found | {"mask": "".join(str(int(kept)) for kept in found["mask"])} == facts


def test_the_specification_shows_a_golden_file_and_the_tables_in_use() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "bitstream.md").read_text()
    data = (GOLDEN / "vfr-compact.dtm").read_bytes()
    for start in range(0, len(data), 16):
        assert f"{start:04x}  {data[start : start + 16].hex(' ')}\n" in text
    for span, row in enumerate(np.reshape(mask_coder.PRIOR, (mask_coder.MAX_SPAN, -1)), start=1):
        assert f"| {span} | {' | '.join(map(str, row))} |\n" in text
    assert ", ".join(map(str, SAMPLE_RATES)).replace(", 48000", " and 48000 Hz") in text


@given(st.data(), st.sampled_from(sorted(MODELS)), st.sampled_from(["raw", "compact"]))
def test_every_file_is_read_by_the_reference(data: st.DataObject, size: int, mode: str) -> None:
    encoded = data.draw(utterances(codebook_size=size))
    written = encoded.to_bytes(mode, MODELS[size])
    statistics = {name: array.tolist() for name, array in MODELS[size].to_arrays().items()}
    found = dtm_reference.read(written, statistics)
    assert (found["mask"], found["codes"]) == (encoded.mask.tolist(), encoded.codes.tolist())
    assert (found["num_samples"], found["model_id"]) == (encoded.num_samples, encoded.model_id)
    assert Layout(*(found[field] for field in ("sample_rate", "hop_length", "token_bits", "stride"))) == encoded.layout
