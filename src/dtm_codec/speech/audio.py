"""Audio in and out: any rate and channel count in, mono float32 inside, 16-bit WAV or FLAC out."""

from __future__ import annotations

import io
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from ..errors import AudioError
from ..system.files import atomic_path, why_no_file
from . import ffmpeg
from .raw import MAX_CHANNELS, RawAudio

Samples: TypeAlias = npt.NDArray[np.float32]
"""(T,) mono, nominally in -1 ... 1."""

Source: TypeAlias = str | PathLike[str] | bytes | BinaryIO | RawAudio
"""A path, the bytes of an audio file, a seekable binary file, or one of samples without a header."""

READ_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64", *ffmpeg.SUFFIXES)
"""What a folder is searched for; a file named outright may have any name. ffmpeg reads what libsndfile does not."""

AUDIO_SUFFIXES = (*READ_SUFFIXES, ".oga", ".sph")
"""What counts as audio: also what we may not be able to read, where it must be listed as a failure."""

WRITE_FORMATS = {".wav": "WAV", ".flac": "FLAC"}

MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 1_000, 1_000_000
"""Rates outside are mistakes, and resampling from a few Hz would fill any memory."""

LOST_SECONDS = 0.1
"""Audio may be this much shorter than its header says: lossy formats count in whole frames."""

MAX_LEVEL = 100.0
"""Floating point recordings may pass full scale, but not by 40 dB; PCM numbers without their scale do."""

UNKNOWN_SIZE = 0x7FFF0000
"""Programs that write a header before they know the length give a size from here on."""

_BLOCK = 1 << 19
"""Source samples decoded at a time, over all channels: an hour of stereo music is never in memory as such."""

_SAMPLES = Path(__file__).parents[1] / "samples"


@dataclass(frozen=True)
class AudioInfo:
    sample_rate: int
    num_samples: int
    """Per channel."""
    channels: int
    promised_samples: int
    """What its header says: more than there are if a WAV file breaks off."""

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sample_rate

    @property
    def promised_s(self) -> float:
        return self.promised_samples / self.sample_rate


def audio_info(source: Source) -> AudioInfo:
    """Rate, length and channels of an audio file, without decoding it if libsndfile knows its format."""
    with _opened(source) as file:
        return AudioInfo(file.samplerate, file.frames, file.channels, _promised(file))


def read_audio(
    source: Source, sample_rate: int | None = None, *, offset: int = 0, frames: int | None = None
) -> tuple[Samples, int]:
    """Mono samples (T,) and their rate: the file's own, or `sample_rate`, resampled to that.

    `offset` and `frames` choose a part, in samples of the file before resampling; the rest is not decoded.
    """
    target = None if sample_rate is None else check_sample_rate(sample_rate)
    if offset < 0 or (frames is not None and frames < 1):
        raise AudioError(f"offset = {offset}, frames = {frames}; allowed: offset >= 0, frames >= 1")
    with _opened(source) as file:
        rate = check_sample_rate(file.samplerate)
        if offset >= file.frames:
            raise AudioError(f"{_name(source)} has {file.frames} samples, none from offset {offset} on")
        if offset:
            file.seek(offset)
        blocks = _mono_blocks(file, frames, _name(source), offset)
        samples = np.concatenate([np.zeros(0, np.float32), *_resampled(blocks, rate, target or rate)])
    if not samples.size:
        raise AudioError(f"{_name(source)} has no samples that can be decoded from offset {offset} on")
    return samples, target or rate


def stream_audio(source: Source, sample_rate: int) -> Iterator[Samples]:
    """The blocks (T_i,) of what `read_audio` gives at once: a long recording is never in memory as a whole."""
    target, empty = check_sample_rate(sample_rate), True
    with _opened(source) as file:
        rate = check_sample_rate(file.samplerate)
        for block in _resampled(_mono_blocks(file, None, _name(source), 0), rate, target):
            if block.size:
                empty = False
                yield block
    if empty:
        raise AudioError(f"{_name(source)} has no samples that can be decoded")


def write_audio(path: str | PathLike[str], audio: Any, sample_rate: int, *, overwrite: bool = True) -> None:
    """Write 16-bit WAV or FLAC, by the suffix of `path`; whole or not at all. Samples beyond full scale are clipped.

    Without `overwrite`, `FileExistsError` if there is such a file: of several processes, one succeeds.
    """
    target = Path(path)
    if target.suffix.lower() not in WRITE_FORMATS:
        raise AudioError(f"cannot write {target}: suffix {target.suffix!r}; allowed: {', '.join(WRITE_FORMATS)}")
    samples = as_mono(audio)
    check_sample_rate(sample_rate)
    try:
        with atomic_path(target, overwrite=overwrite) as temporary, temporary.open("wb") as file:
            write_blocks(file, [samples], sample_rate, target.suffix)
    except FileExistsError:
        raise
    except OSError as error:
        raise AudioError(f"cannot write {target}: {error.strerror or error}") from error


def write_blocks(file: BinaryIO, blocks: Iterable[Samples], sample_rate: int, suffix: str = ".wav") -> None:
    """Write blocks (T_i,) as they come, as a 16-bit WAV or FLAC file. `file` must be seekable.

    Samples beyond full scale are clipped, those that are no numbers refused.
    """
    form, rate = WRITE_FORMATS[suffix.lower()], check_sample_rate(sample_rate)
    disk = _Disk(file)
    try:
        with soundfile.SoundFile(disk, "w", rate, 1, subtype="PCM_16", format=form) as written:
            for block in blocks:
                _check_samples(block, "audio")
                written.write(np.clip(block, -1.0, 1.0))
                if disk.error is not None:
                    break
    except (soundfile.SoundFileError, AssertionError):  # what soundfile makes of a disk that takes no more
        if disk.error is None:
            raise
    if disk.error is not None:
        raise disk.error


class _Disk:
    """A file to write to that remembers an error: exceptions do not get through libsndfile."""

    def __init__(self, file: BinaryIO) -> None:
        self.error: OSError | None = None
        self._file = file
        self.seek, self.tell, self.read = file.seek, file.tell, file.read

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            return 0


def audio_bytes(audio: Any, sample_rate: int, suffix: str = ".wav") -> bytes:
    buffer = io.BytesIO()
    write_blocks(buffer, [as_mono(audio)], sample_rate, suffix)
    return buffer.getvalue()


def resample(audio: Samples, from_rate: int, to_rate: int) -> Samples:
    """The same sound at another rate, (T,) -> (round(T to_rate / from_rate),), at least one sample."""
    from_rate, to_rate = check_sample_rate(from_rate), check_sample_rate(to_rate)
    if from_rate == to_rate:
        return audio
    return np.concatenate(list(_resampled(iter([audio]), from_rate, to_rate)))


def as_mono(audio: Any, name: str = "audio", first: int = 0) -> Samples:
    """Check a caller's samples and mix them to mono: (T,), (channels, T) or (T, channels) -> (T,) float32.

    Takes arrays, tensors and lists; integers of 8, 16 or 32 bits are scaled to -1 ... 1. In errors, `name` is what the
    samples belong to, and `first` the first one's index there.
    """
    if hasattr(audio, "detach"):  # a tensor, on any device, of any float type
        audio = audio.detach().cpu()
        audio = (audio.float() if audio.is_floating_point() else audio).numpy()
    try:
        array = np.asarray(audio)
    except ValueError as error:
        raise AudioError(f"audio is a ragged list; allowed: samples (T,) or (channels, T) ({error})") from error
    array = scaled(array)
    if not array.size:
        raise AudioError("audio is empty; allowed: 1 sample or more")
    if array.ndim == 2 and min(array.shape) <= MAX_CHANNELS:  # the axis up to this length holds the channels
        array = array.mean(axis=0 if array.shape[0] <= min(array.shape[1], MAX_CHANNELS) else 1, dtype=np.float32)
    if array.ndim != 1:
        raise AudioError(f"audio of shape {array.shape}; allowed: (T,), (channels, T) or (T, channels)")
    _check_samples(array, name, first)
    return np.ascontiguousarray(array)


def as_speech(audio: Any, from_rate: int, to_rate: int) -> Samples:
    """A caller's recording as a codec takes it: mono, of a level that recordings have, at `to_rate`."""
    return resample(check_level(as_mono(audio)), from_rate, to_rate)


def check_level(samples: Samples, name: str = "audio", first: int = 0) -> Samples:
    """Refuse samples that no recording has: one of them would drown all others. `first` is the first one's index."""
    return _check_samples(samples, name, first, MAX_LEVEL)


def breaks_off(there_s: float, promised_s: float) -> str | None:
    """What to say of a recording that is shorter than its header promises."""
    if there_s >= promised_s - LOST_SECONDS:
        return None
    return f"the file breaks off: {there_s:.2f} s of {promised_s:.2f} s are there"


def check_sample_rate(sample_rate: Any) -> int:
    """A whole number of Hz, or `AudioError`."""
    whole = isinstance(sample_rate, int | np.integer) and not isinstance(sample_rate, bool)
    if not whole or not MIN_SAMPLE_RATE <= sample_rate <= MAX_SAMPLE_RATE:
        allowed = f"a whole number of Hz, {MIN_SAMPLE_RATE} ... {MAX_SAMPLE_RATE}"
        raise AudioError(f"sample_rate = {sample_rate!r}; allowed: {allowed}")
    return int(sample_rate)


def sample_path(name: str = "dashwood") -> Path:
    """Where the bundled recording of that name is (16 kHz FLAC, public domain; see samples/ORIGIN.md)."""
    names = sorted(path.stem for path in _SAMPLES.glob("*.flac"))
    if name not in names:
        raise AudioError(f"no sample {name!r}; known: {', '.join(names)}")
    return _SAMPLES / f"{name}.flac"


def _mono_blocks(file: soundfile.SoundFile, frames: int | None, name: str, offset: int) -> Iterator[Samples]:
    """Up to `frames` samples from where the file stands; what a truncated file still holds is read."""
    left = file.frames if frames is None else frames
    size = max(1, _BLOCK // file.channels)
    while left > 0 and len(block := file.read(min(size, left), dtype="float32", always_2d=True)):
        yield check_level(block.mean(axis=1, dtype=np.float32), name, offset)
        left, offset = left - len(block), offset + len(block)


def _resampled(blocks: Iterator[Samples], from_rate: int, to_rate: int) -> Iterator[Samples]:
    """Blocks of one signal at another rate. A sound too short for one sample there keeps its first."""
    if from_rate == to_rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32")
    first, empty = np.zeros(0, np.float32), True
    for block in itertools.chain(blocks, (None,)):
        if block is None:
            resampled = stream.resample_chunk(np.zeros(0, np.float32), last=True)
        else:
            first = first if first.size else block[:1].copy()
            resampled = stream.resample_chunk(block)
        empty &= not resampled.size
        yield resampled
    if empty:
        yield first


def _promised(file: soundfile.SoundFile) -> int:
    """Samples that the header of a WAV, AIFF or AU file says there are. libsndfile corrects the number by the file's
    length, but leaves a note."""
    note = re.search(r"(?:data|SSND|Data Size) *: (\d+) \(should be (\d+)\)", file.extra_info)
    if note is None or file.frames == 0:
        return int(file.frames)
    said, there = int(note[1]), int(note[2])
    return round(file.frames * said / there) if there < said < UNKNOWN_SIZE else int(file.frames)


def scaled(array: npt.NDArray[Any]) -> Samples:
    """Float32 samples; what is neither float nor a PCM type is refused."""
    if array.dtype == np.uint8:  # 8-bit PCM is offset binary
        return ((array.astype(np.int16) - 128) / 128).astype(np.float32)
    if array.dtype in (np.int8, np.int16, np.int32):
        return (array / -float(np.iinfo(array.dtype).min)).astype(np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise AudioError(f"audio of type {array.dtype}; allowed: floats in -1 ... 1, or int16, int32, int8, uint8")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, and is refused as that
        return array.astype(np.float32, copy=False)


def _check_samples(samples: Samples, name: str, first: int = 0, most: float = math.inf) -> Samples:
    good = np.isfinite(samples) if most == math.inf else np.abs(samples) <= most  # NaN is in no range
    if not good.all():
        where = int(np.argmin(good))
        allowed = "finite numbers" if most == math.inf else f"-{most:g} ... {most:g}, where full scale is 1"
        raise AudioError(f"{name} holds {samples[where]:g} at sample {first + where}; allowed: {allowed}")
    return samples


def _name(source: Source) -> str:
    if isinstance(source, bytes | RawAudio):
        return "audio data"
    return os.fspath(source) if isinstance(source, str | PathLike) else str(getattr(source, "name", "audio data"))


@contextmanager
def _opened(source: Source) -> Iterator[soundfile.SoundFile]:
    """The source as an open `SoundFile`; whatever goes wrong in it becomes `AudioError`."""
    name = _name(source)
    if isinstance(source, str | PathLike) and (reason := why_no_file(Path(source))):
        raise AudioError(f"cannot read {name}: {reason}")
    try:
        with _sound_file(source, name) as file:
            if not file.frames:
                raise AudioError(f"{name} has no samples")
            yield file
    except (soundfile.SoundFileError, OSError, TypeError) as error:
        reason = getattr(error, "error_string", None) or str(error) or "it is damaged or breaks off"
        raise AudioError(f"cannot read {name} as WAV, FLAC, OGG or MP3: {reason.rstrip('.')}") from error


def _sound_file(source: Source, name: str) -> soundfile.SoundFile:
    if isinstance(source, RawAudio):
        raw = source.format
        source.file.seek(0)
        shape = {"samplerate": check_sample_rate(raw.sample_rate), "channels": raw.channels}
        return soundfile.SoundFile(source.file, **shape, format="RAW", subtype=raw.subtype, endian="LITTLE")
    opened: Any = io.BytesIO(source) if isinstance(source, bytes) else source
    if isinstance(opened, str | PathLike):
        with Path(opened).open("rb") as file:
            head = file.read(ffmpeg.HEAD_BYTES)
    else:
        opened.seek(0)
        head = opened.read(ffmpeg.HEAD_BYTES)
        opened.seek(0)
    form = ffmpeg.format_of(head)
    if form is not None:
        return soundfile.SoundFile(ffmpeg.decoded(opened, form, name))
    if isinstance(opened, str | PathLike) and os.name != "nt":
        opened = os.fsencode(opened)  # names need not be UTF-8
    return soundfile.SoundFile(opened)
