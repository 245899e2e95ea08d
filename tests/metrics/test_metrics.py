"""Judges: known values, laws of the formulas, one text normaliser, clear hints when something is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtm_codec import metrics
from dtm_codec.errors import AudioError, ConfigError, DTMCodecError
from dtm_codec.metrics import Metric, Sample, Score, words
from dtm_codec.metrics.base import SAMPLE_RATE, Last, Samples
from dtm_codec.metrics.cepstral import cepstra
from dtm_codec.metrics.recognisers import Recogniser
from dtm_codec.metrics.speaker import log_mel_filterbank
from dtm_codec.nn.mel_distance import MultiScaleMelDistance
from dtm_codec.training.config import LossConfig

OFFLINE = ["pesq", "stoi", "estoi", "si-sdr", "mel", "stft", "lsd", "mcd", "visqol:polynomial", "f0-rmse", "vuv"]


def score(name: str, sample: Sample) -> float:
    result = metrics.build(name).score(sample)
    assert result is not None
    return result.value


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.MODELS_VARIABLE, raising=False)


def test_the_reference_itself_has_the_best_value_there_is(speech: Samples) -> None:
    same = Sample(speech.copy(), speech)
    assert score("pesq", same) == pytest.approx(4.644, abs=1e-3)
    for name, best in {
        "stoi": 1.0,
        "estoi": 1.0,
        "si-sdr": 100.0,
        "mel": 0.0,
        "stft": 0.0,
        "lsd": 0.0,
        "mcd": 0.0,
    }.items():
        assert score(name, same) == pytest.approx(best, abs=1e-6), name


@pytest.mark.parametrize("name", OFFLINE)
def test_more_noise_is_worse(name: str, speech: Samples) -> None:
    noise = np.random.default_rng(0).standard_normal(speech.size).astype(np.float32)
    metric = metrics.build(name)
    little, much = (score(name, Sample(speech + level * noise, speech)) for level in (0.002, 0.02))
    assert (little > much) == metric.higher_is_better


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 10.0), st.floats(0.001, 1.0))
def test_si_sdr_is_the_ratio_of_energies_at_any_gain(gain: float, level: float) -> None:
    time = np.arange(16_000) / SAMPLE_RATE
    tone, other = (np.sin(2 * np.pi * f * time).astype(np.float32) for f in (200, 300))  # orthogonal, without mean
    decoded = (gain * (tone + level * other)).astype(np.float32)
    assert score("si-sdr", Sample(decoded, tone)) == pytest.approx(-20 * np.log10(level), abs=0.02)


@pytest.mark.parametrize("name", metrics.known())
def test_every_metric_builds_and_says_how_it_is_read(name: str) -> None:
    metric = metrics.build(name)
    assert metric.label
    assert metric.name.partition(":")[0] == name
    assert metric.decimals > 0


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize("name", [*metrics.known(), "wer:moonshine", "wer:whisper", "spk-sim:onnx", "dnsmos:p808"])
def test_a_judge_is_named_or_what_is_missing_is_said(name: str) -> None:
    try:
        said = metrics.build(name).judge
    except DTMCodecError as error:
        said = str(error)
        named = "pip install" in said or "DTM_METRIC_MODELS" in said
    else:
        named = True
    assert said
    assert named


@pytest.mark.parametrize("name", ["pesk", "wer:siri", "pesq?model=x", "dnsmos:loud", "?", "wer:", "mel?a"])
def test_a_wrong_name_is_one_clear_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"known|allowed|no name|key=value") as error:
        metrics.build(name)
    assert "\n" not in str(error.value)


def test_two_judges_of_one_name_do_not_share_a_run(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(name.encode())
    one, two = (f"spk-sim:onnx?model={tmp_path / name}" for name in ("a.onnx", "b.onnx"))
    assert len(metrics.build_all([one, one])) == 1
    with pytest.raises(ConfigError, match="two judges"):
        metrics.build_all([one, two])


def test_the_standard_set_prefers_the_papers_judges(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda package: object())
    monkeypatch.setenv(metrics.MODELS_VARIABLE, str(tmp_path))
    (tmp_path / "moonshine-base").mkdir()
    (tmp_path / "speaker.onnx").touch()
    assert metrics.standard() == ["utmosv2", "distillmos", "pesq", "stoi", "spk-sim:onnx", "wer:moonshine"]
    (tmp_path / "hubert-large-ls960-ft").mkdir()
    assert "wer:hubert" in metrics.standard()
    assert "wer:moonshine" not in metrics.standard()


def test_all_is_every_metric_by_the_first_judge_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.MODELS_VARIABLE, raising=False)
    monkeypatch.setattr(metrics, "find_spec", lambda package: package != "ai_edge_litert" or None)
    chosen = metrics.choose("all")
    assert "visqol:polynomial" in chosen
    without_a_model = {name for name in metrics.known() if name not in ("utmos", "spk-sim", "wer", "cer")}
    assert {name.partition(":")[0] for name in chosen} == without_a_model
    assert metrics.choose("pesq, all") == ["pesq", *(name for name in chosen if name != "pesq")]
    assert metrics.choose(None) == metrics.standard()


# Pitch, cepstra and spectra: known values


def tone(hertz: float, seconds: float = 1.0) -> Samples:
    """A voice of twenty harmonics."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return sum(0.02 * np.sin(2 * np.pi * hertz * k * time) for k in range(1, 21)).astype(np.float32)


def test_a_voice_that_is_10_hz_too_high_has_that_error_and_no_other() -> None:
    pytest.importorskip("parselmouth")
    sample = Sample(tone(130), tone(120))
    assert score("f0-rmse", sample) == pytest.approx(10, abs=0.1)
    assert score("vuv", sample) == 0


def test_a_voice_that_stops_half_way_has_half_its_frames_wrong() -> None:
    pytest.importorskip("parselmouth")
    half = tone(120)
    half[half.size // 2 :] = 0
    assert score("vuv", Sample(half, tone(120))) == pytest.approx(50, abs=4)
    with pytest.raises(AudioError, match="voiced in both"):
        score("f0-rmse", Sample(np.zeros_like(half), tone(120)))


def test_mcd_is_the_rms_difference_in_db_of_the_smoothed_spectra() -> None:
    pytest.importorskip("kaldi_native_fbank")
    bands = np.arange(80)
    ripple = 6 * np.cos(np.pi * 3 * (bands + 0.5) / 80)  # dB, so 3 cosines of a cepstrum
    flat = np.zeros((1, 80), np.float32)
    difference = cepstra((flat + ripple * np.log(10) / 10).astype(np.float32)) - cepstra(flat)
    distance = 10 / np.log(10) * np.sqrt(2 * np.square(difference).sum())
    assert distance == pytest.approx(np.sqrt(np.mean(ripple**2)), rel=1e-5)


def moments(sample: Sample) -> dict[str, Score]:
    found = {moment: metrics.build(f"mcd:{moment}").score(sample) for moment in ("quiet", "steady", "changing")}
    return {moment: score for moment, score in found.items() if score is not None}


def test_moments_share_the_frames_of_an_utterance(speech: Samples) -> None:
    pytest.importorskip("kaldi_native_fbank")
    noise = np.random.default_rng(0).standard_normal(speech.size + 8000).astype(np.float32)
    reference = np.pad(speech, (0, 8000)) + 1e-5 * noise[::-1]
    sample = Sample(reference + 0.01 * noise, reference)
    parts = moments(sample)
    assert all(parts[moment].weight > 20 for moment in ("quiet", "steady", "changing"))
    total = sum(part.weight for part in parts.values())
    assert sum(part.value * part.weight for part in parts.values()) / total == pytest.approx(score("mcd", sample))
    assert parts["quiet"].value > parts["steady"].value, "noise shows most where nothing else is"


def test_what_stands_still_is_steady_and_what_jumps_changes() -> None:
    pytest.importorskip("kaldi_native_fbank")
    assert list(moments(Sample(tone(100), tone(100)))) == ["steady"]
    jump = np.concatenate([tone(300, 0.5), 0.1 * np.random.default_rng(0).standard_normal(8000).astype(np.float32)])
    assert moments(Sample(jump, jump))["changing"].weight >= 3


def test_a_gain_is_no_cepstral_distortion_and_6_db_of_spectral_distance(speech: Samples) -> None:
    pytest.importorskip("kaldi_native_fbank")
    noise = 0.1 * np.random.default_rng(0).standard_normal(SAMPLE_RATE).astype(np.float32)  # no band is near the floor
    sample = Sample(noise / 2, noise)
    assert score("mcd", sample) == pytest.approx(0, abs=0.01)
    assert score("lsd", sample) == pytest.approx(20 * np.log10(2), abs=0.01)


@pytest.mark.parametrize("name", ["f0-rmse", "vuv", "mcd", "lsd", "visqol:polynomial"])
def test_a_blink_of_sound_has_no_value(name: str) -> None:
    with pytest.raises(AudioError, match="no value"):
        score(name, Sample(tone(120, 0.02), tone(120, 0.02)))


def test_silence_has_no_pesq_no_stoi_and_no_visqol() -> None:
    silence = np.zeros(SAMPLE_RATE, np.float32)
    for name in ("pesq", "stoi", "visqol:polynomial"):
        with pytest.raises(DTMCodecError, match="no value"):
            metrics.build(name).score(Sample(silence, silence))


def test_the_mel_metric_is_the_loss_of_training(speech: Samples) -> None:
    noisy = speech + 0.01 * np.random.default_rng(0).standard_normal(speech.size).astype(np.float32)
    loss = MultiScaleMelDistance(SAMPLE_RATE, LossConfig().mel_windows)
    expected = loss(torch.from_numpy(noisy)[None], torch.from_numpy(speech)[None])
    assert score("mel", Sample(noisy, speech)) == float(expected)


@pytest.mark.parametrize("name", ["mel", "stft"])
def test_spectral_distances_of_less_than_half_a_window_have_no_value(name: str, speech: Samples) -> None:
    assert score(name, Sample(speech[:1025], speech[:1025])) == 0.0
    with pytest.raises(AudioError, match="less than 1025 samples"):
        metrics.build(name).score(Sample(speech[:1024], speech[:1024]))


def test_filterbank_is_a_log_mel_spectrogram_of_25_ms_frames_every_10_ms() -> None:
    pytest.importorskip("kaldi_native_fbank")
    tone = 0.1 * np.sin(2 * np.pi * 1000 * np.arange(SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    quiet, loud = (log_mel_filterbank(gain * tone) for gain in (0.5, 1.0))
    assert loud.shape == (1 + (SAMPLE_RATE - 400) // 160, 80)
    assert np.array_equal(loud, log_mel_filterbank(tone))  # no dither
    mel = 1127 * np.log1p(np.array([20, 1000, 8000]) / 700)
    assert (np.abs(loud.argmax(axis=1) - (80 + 1) * (mel[1] - mel[0]) / (mel[2] - mel[0])) < 2).all()
    assert np.allclose((loud - quiet)[:, loud.argmax() % 80], 2 * np.log(2), atol=1e-3)  # in power, natural log


# Words


class Parrot(Recogniser):
    """Says what it is told, and counts how often it is asked."""

    languages = frozenset({"en"})
    judge = "parrot"
    loaded = None
    says = ""
    asked = 0

    def hear(self, audio: Samples, language: str) -> str:
        self.asked += 1
        return self.says


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    pytest.importorskip("jiwer")
    pytest.importorskip("whisper_normalizer")
    bird = Parrot(None)
    monkeypatch.setattr(words, "recogniser", lambda name, model: bird)
    return bird


def heard(parrot: Parrot, says: str, text: str | None, language: str | None = "en", name: str = "wer") -> Score | None:
    parrot.says = says
    silence = np.zeros(160, np.float32)
    return metrics.build(name).score(Sample(silence, silence, text, language))


def test_errors_are_counted_in_words_and_in_characters(parrot: Parrot) -> None:
    assert heard(parrot, "the cat sat down", "the cat sat") == Score(100 / 3, 3, "the cat sat down")
    assert heard(parrot, "", "good day") == Score(100.0, 2, "")
    characters = heard(parrot, "cot", "cat", name="cer")
    assert characters is not None
    assert characters.value == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("Mr. Dashwood's colour, it's 20!", "mister dashwood's color it is twenty"),
        ("HE COUNSELLED HIM", "he counseled him"),
        ("forty-two   pounds", "42 pounds"),
    ],
)
def test_spelling_numbers_case_and_marks_are_no_errors(parrot: Parrot, says: str, text: str) -> None:
    result = heard(parrot, says, text)
    assert result is not None
    assert result.value == 0.0


def test_without_text_or_in_a_foreign_language_there_is_no_value(parrot: Parrot) -> None:
    assert heard(parrot, "x", None) is None
    assert heard(parrot, "x", "[laughter] Um.") is None  # nothing is left of it
    assert heard(parrot, "x", "...") is None
    assert heard(parrot, "x", "guten tag", "de") is None
    assert heard(parrot, "x", "good day", None) is not None


def test_wer_and_cer_share_a_transcript(parrot: Parrot) -> None:
    parrot.says = "a cat"
    sample = Sample(np.zeros(160, np.float32), np.zeros(160, np.float32), "a cat")
    assert [metrics.build(name).score(sample).value for name in ("wer", "cer")] == [0.0, 0.0]  # type: ignore[union-attr]
    assert parrot.asked == 1


def test_last_computes_once_per_array() -> None:
    calls: list[int] = []
    last = Last(lambda array: calls.append(array.size))
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    for array in (one, one, two, two, one):
        last(array)
    assert calls == [1, 2, 1]


def test_a_metric_may_be_left_to_its_defaults() -> None:
    assert isinstance(metrics.build("wer"), Metric)
    assert metrics.build("wer").name == "wer:hubert"
    assert metrics.build("spk-sim").name == "spk-sim:wavlm"
    assert metrics.build("dnsmos").name == "dnsmos:ovrl"
