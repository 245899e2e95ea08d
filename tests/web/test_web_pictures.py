import numpy as np
import pytest

from dtm_codec.web.pictures import MAX_COLUMNS, spectrogram


def test_a_tone_is_the_brightest_at_its_frequency():
    time = np.arange(16_000) / 16_000
    picture = spectrogram(np.sin(2 * np.pi * 2000 * time).astype(np.float32), 16_000)
    bins = picture.cells.shape[1]
    assert (np.abs(picture.cells[10:-10].argmax(axis=1) / (bins - 1) * 8000 - 2000) < 40).all()


def test_columns_are_spread_over_all_of_the_signal():
    audio = np.zeros(48_000, np.float32)
    audio[-1600:] = np.random.default_rng(0).standard_normal(1600)
    loud = spectrogram(audio, 16_000).cells.mean(axis=1)
    start = np.argmax(loud > 50) / loud.size * 3
    assert start == pytest.approx(2.9, abs=0.03)


@pytest.mark.parametrize("samples", [1, 159, 400, 16_001])
def test_any_length_has_a_picture_and_length_is_bounded(samples: int):
    assert spectrogram(np.ones(samples, np.float32), 16_000).cells.shape[0] >= 1
    assert spectrogram(np.ones(3_000_000, np.float32), 16_000).cells.shape[0] == MAX_COLUMNS


def test_a_quieter_copy_on_the_same_scale_is_darker():
    audio = np.random.default_rng(0).standard_normal(8000).astype(np.float32)
    loud = spectrogram(audio, 16_000)
    quiet = spectrogram(audio / 10, 16_000, loud.peak_db)
    assert loud.cells.mean() - quiet.cells.mean() == pytest.approx(255 * 20 / 75, abs=2)
