"""The STFT and iSTFT pair: exact frame counts, perfect reconstruction, slaney filters."""

from __future__ import annotations

import pytest
import torch

from dtm_codec.config import CodecConfig
from dtm_codec.nn.heads import SpectralHead
from dtm_codec.nn.spectral import FrontEnd, frame_signal, mel_filterbank, overlap_add


@pytest.mark.parametrize("hop", [100, 140, 160, 200, 320])
@pytest.mark.parametrize("frames", [1, 2, 5, 30])
def test_a_signal_of_n_hops_has_n_frames_and_comes_back(hop: int, frames: int) -> None:
    audio = torch.randn(2, frames * hop)
    config = CodecConfig(hop_length=hop, dim=8)
    front_end, head = FrontEnd(config), SpectralHead(config)
    spectrum = front_end.spectrum(frame_signal(audio, 4 * hop, hop))
    assert spectrum.shape == (2, frames, 2 * hop + 1)
    windowed = torch.fft.irfft(spectrum, n=4 * hop) * head.window
    torch.testing.assert_close(head.synthesize(windowed), audio, atol=1e-4, rtol=1e-4)


def test_frames_are_centred_on_their_hop() -> None:
    audio = torch.zeros(10 * 160)
    audio[5 * 160 + 80] = 1.0  # the middle of hop 5
    energy = FrontEnd(CodecConfig()).spectrum(frame_signal(audio, 640, 160)).abs().sum(-1)
    assert energy.argmax() == 5


def test_overlap_add_is_the_sum_of_shifted_frames() -> None:
    frames = torch.randn(7, 12)
    expected = torch.zeros((7 + 2) * 4)
    for i, frame in enumerate(frames):
        expected[4 * i : 4 * i + 12] += frame
    torch.testing.assert_close(overlap_add(frames, 4), expected)


def test_mel_filters_are_slaneys() -> None:
    """Values from the definition: 1 kHz is mel 15, filters have unit area in hertz."""
    filters = mel_filterbank(16_000, 2048, 80)
    assert filters.shape == (80, 1025)
    area = filters.sum(1) * 16_000 / 2048
    torch.testing.assert_close(area[20:], torch.ones(60), atol=0.02, rtol=0)
    centres = filters.argmax(1) * 16_000 / 2048
    top_mel = 15 + torch.log(torch.tensor(8.0)) / (torch.log(torch.tensor(6.4)) / 27)
    linear = (torch.arange(1, 81) * top_mel / 81) < 15
    torch.testing.assert_close(
        centres[linear], (torch.arange(1, 81) * top_mel / 81 * 1000 / 15)[linear], atol=8.0, rtol=0
    )
