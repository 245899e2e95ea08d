"""Probes: learn what is there, nothing more, and never hear a test voice in training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dtm_codec.errors import DTMCodecError
from dtm_codec.evaluation import systems
from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.layouts import read_layout
from dtm_codec.evaluation.probing import _scores, embed_all, folds, probe
from dtm_codec.evaluation.systems.ours import DTM
from dtm_codec.speech.audio import write_audio
from dtm_codec.speech.utterance import Utterance


def utterances(count: int, speakers: int, classes: int) -> list[Utterance]:
    random = np.random.default_rng(0)
    return [
        Utterance(str(i), Path(str(i)), speaker=f"s{i % speakers}", labels={"y": str(random.integers(classes))})
        for i in range(count)
    ]


def features_of(rows: list[Utterance], noise: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(4, 16, generator=generator)
    targets = torch.tensor([int(str(u.value("y"))) for u in rows])
    return means[targets] + noise * torch.randn(len(rows), 16, generator=generator)


def test_separable_classes_are_found_and_noise_is_not() -> None:
    rows = utterances(120, 6, 4)
    clear = probe(features_of(rows, 0.3), rows, "y", 3)
    assert clear.accuracy > 90
    assert clear.f1 > 90
    nothing = probe(torch.randn(120, 16, generator=torch.Generator().manual_seed(1)), rows, "y", 3)
    assert nothing.accuracy < 45


def test_folds_cover_every_utterance_once_and_share_no_speaker() -> None:
    rows = utterances(50, 7, 2)
    found = folds(rows, 5)
    assert np.sum([fold.test for fold in found], axis=0).tolist() == [1] * 50
    for fold in found:
        assert (fold.train == ~fold.test).all()
        held_out = {u.speaker for u, test in zip(rows, fold.test, strict=True) if test}
        assert held_out.isdisjoint(u.speaker for u, train in zip(rows, fold.train, strict=True) if train)


def test_a_split_of_the_set_is_kept() -> None:
    splits = ["test"] * 3 + ["train"] * 6 + ["devel"]
    rows = [Utterance(str(i), Path("x"), labels={"split": split}) for i, split in enumerate(splits)]
    (fold,) = folds(rows, 5)
    assert fold.test.tolist() == [True] * 3 + [False] * 7
    assert fold.train.tolist() == [False] * 3 + [True] * 6 + [False]
    with pytest.raises(DTMCodecError, match="split=test"):
        folds(rows[3:], 5)


def test_f1_is_averaged_over_classes() -> None:
    accuracy, f1 = _scores(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]), 3)
    assert accuracy == 0.75
    assert f1 == pytest.approx((0.8 + 2 / 3) / 2)


def test_missing_labels_and_speakers_are_said() -> None:
    rows = utterances(4, 1, 2)
    with pytest.raises(DTMCodecError, match="speakers"):
        probe(torch.zeros(4, 2), rows, "y")
    with pytest.raises(DTMCodecError, match="no label 'emotion'"):
        probe(torch.zeros(4, 2), rows, "emotion")


def test_embeddings_are_means_of_what_the_quantizer_gives(models: Path, manifest: Path) -> None:
    system = systems.build(f"dtm:{models / 's-ffr-50'}")
    assert isinstance(system, DTM)
    assert embed_all(system, read_data(manifest)).shape == (3, system.codec.config.dim)


@pytest.mark.parametrize(
    ("name", "files", "label", "values"),
    [
        ("RAVDESS", ["Actor_12/03-01-06-01-02-01-12.wav", "03-02-06-01-02-01-12.wav"], "emotion", {"fearful"}),
        ("EMOVO", ["f1/dis-f1-b1.wav", "m2/gio-m2-l4.wav", "readme-x.wav"], "emotion", {"dis", "gio"}),
        ("AudioMNIST", ["01/7_01_0.wav", "60/0_60_49.wav"], "digit", {"7", "0"}),
        ("SLURP", ["audio/slurp_real/audio-1.flac"], "intent", {"alarm_set"}),
    ],
)
def test_published_layouts_are_read(name: str, files: list[str], label: str, values: set[str], tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        write_audio(tmp_path / file, np.zeros(100, np.float32), 16_000)
    if name == "SLURP":
        recordings = [{"file": "audio-1.flac"}, {"file": "no.flac"}]
        line = json.dumps({"intent": "alarm_set", "sentence": "wake me", "recordings": recordings})
        (tmp_path / "dataset").mkdir()
        (tmp_path / "dataset" / "train.jsonl").write_text(line + "\n")
    found = read_layout(name, tmp_path)
    assert {u.value(label) for u in found} == values
    assert all(u.audio.is_file() for u in found)
    assert all(u.speaker for u in found) or name == "SLURP"


@pytest.mark.parametrize("line", ["{", "[]", '{"intent": "x"}', '{"intent": "x", "recordings": [{}]}', "\xff"])
def test_a_bad_line_of_slurp_is_named(line: str, tmp_path: Path) -> None:
    write_audio(tmp_path / "audio-1.flac", np.zeros(100, np.float32), 16_000)
    good = json.dumps({"intent": "alarm_set", "recordings": [{"file": "audio-1.flac"}]})
    (tmp_path / "train.jsonl").write_bytes(f"{good}\n{line}\n".encode("latin-1"))
    with pytest.raises(DTMCodecError, match=r"train\.jsonl line 2 is none of SLURP; allowed: an object with intent"):
        read_layout("SLURP", tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DTMCodecError, match="no files of EMOVO"):
        read_layout("EMOVO", tmp_path)
    with pytest.raises(DTMCodecError, match="known"):
        read_layout("IEMOCAP", tmp_path)
