"""Pitch on its grid, pulse trains that go on from piece to piece, and a head that sings the pitch it is told."""

from __future__ import annotations

import math

import pytest
import torch

from dtm_codec.config import PITCH_BINS, CodecConfig
from dtm_codec.errors import ConfigError
from dtm_codec.nn.pitch import PitchSalience, Pulses, pitch_of_bins, predicted_pitch
from dtm_codec.nn.source_filter import SourceFilterHead
from dtm_codec.nn.spectral import frame_signal

RATE, HOP = 16_000, 160


def sawtooth(hertz: float, seconds: float = 0.5) -> torch.Tensor:
    """A rich periodic sound."""
    time = torch.arange(round(seconds * RATE)) / RATE
    return 0.1 * torch.stack([torch.sin(2 * math.pi * h * hertz * time) / h for h in range(1, 20)]).sum(0)


@pytest.mark.parametrize("hertz", [70.0, 123.4, 250.0, 400.0])
def test_salience_is_highest_at_the_pitch(hertz: float) -> None:
    salience = PitchSalience(4 * HOP, RATE)(frame_signal(sawtooth(hertz), 4 * HOP, HOP))[10]
    nearest = int((pitch_of_bins(torch.arange(PITCH_BINS)) - hertz).abs().argmin())
    own = float(salience[nearest - 1 : nearest + 2].max())
    assert 0.9 < own < 1.1
    assert own > float(salience.max()) - 0.05  # it repeats itself as well at twice and three times its period
    assert own > float(salience[nearest + 10 :].amax()) + 0.1


def test_noise_and_silence_have_little_salience() -> None:
    frames = torch.randn(50, 4 * HOP, generator=torch.Generator().manual_seed(0))
    salience = PitchSalience(4 * HOP, RATE)
    assert float(salience(frames).mean()) < 0.1
    assert float(salience(torch.zeros(1, 4 * HOP)).abs().max()) == 0


def test_predicted_pitch_lies_between_bins() -> None:
    logits = -0.5 * (torch.arange(PITCH_BINS) - torch.tensor([[40.0], [40.5], [150.0]])).square()
    torch.testing.assert_close(
        predicted_pitch(logits).float(), pitch_of_bins(torch.tensor([40.0, 40.5, 150.0])), rtol=2e-3, atol=0
    )


def test_pulses_go_on_from_piece_to_piece_and_start_with_every_utterance() -> None:
    pitch = 100 + 50 * torch.rand(90, generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(40), torch.arange(50)])
    whole = Pulses.following(pitch, positions, 0.01)
    before, pieces = None, []
    for piece in (slice(0, 7), slice(7, 45), slice(45, 90)):
        before = Pulses.following(pitch[piece], positions[piece], 0.01, before)
        pieces.append(before.phase)
    torch.testing.assert_close(torch.cat(pieces), whole.phase, rtol=0, atol=1e-9)
    assert whole.phase[0] == whole.phase[40] == 0


def test_a_constant_pitch_turns_at_its_own_rate() -> None:
    phase = Pulses.following(torch.full((100,), 130.0), torch.arange(100), 0.01).phase
    expected = 2 * math.pi * ((130.0 * 0.01 * torch.arange(100, dtype=torch.float64)) % 1)
    torch.testing.assert_close(torch.cos(phase), torch.cos(expected))


@pytest.mark.parametrize("hertz", [90.0, 200.0])
def test_the_head_sounds_at_the_pitch_it_is_given(hertz: float) -> None:
    """With no noise and flat pulses the spectrum has peaks at the harmonics and next to nothing between them."""
    head = SourceFilterHead(CodecConfig(hop_length=HOP, dim=8))
    head.requires_grad_(False)
    with torch.no_grad():
        head.project.weight.zero_()
        head.project.bias.zero_()
        head.project.bias[321:642] = -20  # noise
    positions = torch.arange(100)
    frames = head(torch.zeros(100, 8), positions, pitch=torch.full((100,), hertz)).frames
    audio = head.synthesize(frames[None])[0]
    spectrum = torch.fft.rfft(audio * torch.hann_window(audio.numel())).abs()
    at = [float(spectrum[round(h * hertz) - 1 : round(h * hertz) + 2].max()) for h in range(1, 20)]
    between = [float(spectrum[round((h + 0.5) * hertz)]) for h in range(1, 20)]
    assert min(at) > 30 * max(between)


def test_a_head_goes_on_from_the_state_of_the_piece_before() -> None:
    torch.manual_seed(0)
    head = SourceFilterHead(CodecConfig(hop_length=HOP, dim=8)).requires_grad_(False)
    x, positions = torch.randn(90, 8), torch.cat([torch.arange(40), torch.arange(50)])
    whole, state, frames = head(x, positions), None, []
    for piece in (slice(0, 7), slice(7, 45), slice(45, 90)):
        output = head(x[piece], positions[piece], state=state)
        frames.append(output.frames)
        state = output.state
    torch.testing.assert_close(torch.cat(frames), whole.frames, rtol=0, atol=1e-4)
    assert not torch.allclose(head(x[45:], positions[45:]).frames, whole.frames[45:], atol=1e-4)


def test_a_little_of_the_logits_is_little_of_the_pitch() -> None:
    """Phases add up the pitch for as long as someone speaks: rounding must not."""
    logits = torch.randn(500, PITCH_BINS, generator=torch.Generator().manual_seed(0))
    noise = 1e-7 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    assert float((predicted_pitch(logits) - predicted_pitch(logits + noise)).abs().max()) < 1e-5


def test_a_pulse_moves_smoothly_with_its_phase() -> None:
    head = SourceFilterHead(CodecConfig(hop_length=HOP, dim=8))
    phase = torch.linspace(-4e-3, 4e-3, 401, dtype=torch.float64) % (2 * math.pi)  # through a pulse in mid-frame
    spectra = head._pulse_spectrum(Pulses(torch.full((401,), 60.0), phase))
    waves = torch.fft.irfft(spectra, n=4 * HOP)
    assert float(waves.diff(dim=0).abs().max()) < 2e-3 * float(waves.max())


def test_pitch_features_need_a_window_of_a_period() -> None:
    with pytest.raises(ConfigError, match="hop_length = 40"):
        CodecConfig(hop_length=40, spectral_features="complex+logmag+pitch")
