"""The language model of examples/ is a probability of tokens and durations, so that its bits can be compared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from dtm_codec import DTMCodec, Encoded, Layout
from dtm_codec.speech.audio import audio_info, sample_path

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_language_model.py"
LAYOUT = Layout(sample_rate=16_000, hop_length=160, token_bits=6, stride=None)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    pytest.importorskip("pyarrow")
    spec = importlib.util.spec_from_file_location("train_language_model", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(example: ModuleType) -> torch.nn.Module:
    """Of 50 codes, random in all its parts."""
    torch.manual_seed(0)
    codebook = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    model = example.LanguageModel(codebook, example.Size(dim=16, layers=2, heads=2, member_dim=8)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_every_code_is_in_one_neighbourhood(example: ModuleType) -> None:
    for size in (2, 50, 64, 1000):
        members = example.neighbourhoods(np.random.default_rng(1).standard_normal((size, 4)))
        assert sorted(members[members >= 0].tolist()) == list(range(size))
        assert (members < 0).sum(1).max() <= 1


@torch.inference_mode()
def test_probabilities_of_all_codes_and_durations_sum_to_one(example: ModuleType, model: torch.nn.Module) -> None:
    hidden = model.hidden(torch.tensor([[3, 7, 7]]), torch.tensor([[1, 4, 40]]))[0, -1]
    codes, durations = torch.arange(50), torch.arange(1, 20_000)
    code, _ = model.nats(hidden.expand(50, -1), codes, torch.ones_like(codes))
    assert float((-code).exp().sum()) == pytest.approx(1, abs=1e-5)
    _, duration = model.nats(hidden.expand(len(durations), -1), torch.full_like(durations, 3), durations)
    assert float((-duration).exp().sum()) == pytest.approx(1, abs=1e-3)  # 0.0001 are beyond 20 000 steps


def test_a_token_is_predicted_from_those_before_it_alone(model: torch.nn.Module) -> None:
    codes, durations = torch.arange(12)[None], torch.arange(1, 13)[None]
    before = model.hidden(codes, durations)
    changed, longer = codes.clone(), durations.clone()
    changed[0, 6], longer[0, 6] = 40, 20
    for other in (model.hidden(changed, durations), model.hidden(codes, longer)):
        assert torch.allclose(before[0, :7], other[0, :7], atol=1e-6)
        assert not torch.allclose(before[0, 7], other[0, 7], atol=1e-3)


def test_windows_count_every_token_once(
    example: ModuleType, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "nats", lambda hidden, codes, durations: (codes.float(), durations.float()))
    for size in (1, 2, example.CONTEXT, example.CONTEXT + 1, 3 * example.CONTEXT // 2, 2 * example.CONTEXT + 7):
        codes = np.random.default_rng(size).integers(0, 50, size)
        encoded = Encoded.from_durations(codes, np.full(size, 2), "test:00000000", LAYOUT)
        cost = example.cost_under(model, [encoded])
        assert cost.codes * np.log(2) == pytest.approx(codes.sum())
        assert cost.durations * np.log(2) == pytest.approx(2 * size)


def test_a_continuation_begins_with_its_prompt(example: ModuleType, model: torch.nn.Module) -> None:
    prompt = Encoded.from_durations([1, 2, 3, 4], [1, 1, 2, 5], "test:00000000", LAYOUT)
    assert example.first_part(prompt, 0.04).codes.tolist() == [1, 2, 3]
    heard = example.continuation(model, prompt, 100, 1.0, seed=0)
    assert heard.codes[:4].tolist() == [1, 2, 3, 4]
    assert heard.durations[:4].tolist() == [1, 1, 2, 5]
    assert heard.mask.size >= 109
    assert heard.mask.size - heard.durations[-1] < 109
    assert heard == example.continuation(model, prompt, 100, 1.0, seed=0)
    assert heard != example.continuation(model, prompt, 100, 1.0, seed=1)


def test_the_script_learns_two_recordings_by_heart(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example.tokenized(sample_path().parent, tmp_path / "tokens", 800)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "tokens", "tokens", "--steps", "25", "--continuations", "1"])
    example.main()
    printed = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in printed if line.startswith("| ")]
    bits = {row[0]: float(row[3]) for row in rows if len(row) == 5}
    assert bits["language model"] < 10 < bits["compact file, statistics of the model"] < bits["fixed width"]
    prompt, heard = (audio_info(tmp_path / "lm" / f"0-{name}.wav").duration_s for name in ("prompt", "continued"))
    assert 2.5 < prompt <= 3
    assert heard >= prompt + 4
    saved = torch.load(tmp_path / "lm" / "lm.pt")
    assert saved["weights"].keys() == example.LanguageModel(DTMCodec.from_pretrained().codebook).state_dict().keys()
