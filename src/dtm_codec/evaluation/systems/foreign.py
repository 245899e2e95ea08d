"""Any codec: audio that it has decoded already (`folder:`), or a line for the shell that runs it (`command:`)."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ...errors import AudioError, ConfigError
from ...layout import Bits
from ...metrics.base import SAMPLE_RATE
from ...specs import Spec, positive_number
from ...speech.audio import Samples, read_audio, write_audio
from ...speech.matching import Matching, listed, match
from ...system.files import fingerprint
from .base import Coded, System, fit
from .programs import ProgramError

TOLERANCE_S = 0.5
"""Audio may be so much longer or shorter than the reference: codecs fill frames. More is another recording."""

TIMEOUT_S = 600.0
"""A program may take so long for one utterance."""

TITLE_LENGTH = 48


class _Foreign(System):
    """What both have: a name of the user's choice, a rate that they may know, and a delay."""

    options: tuple[str, ...] = ("name", "bps", "delay")

    def __init__(self, spec: Spec, title: str) -> None:
        spec.allow_options(self.options)
        self.name = spec.text
        self.title = self.series = spec.options.get("name") or title
        self.bps = self._number(spec, "bps")
        self.delay = round((self._number(spec, "delay") or 0) * SAMPLE_RATE / 1000)

    @staticmethod
    def _number(spec: Spec, key: str) -> float | None:
        return positive_number(spec.options[key], f"{spec.kind}: {key}") if key in spec.options else None

    def _bits(self, num_samples: int) -> Bits | None:
        """By the rate that the user gave."""
        return None if self.bps is None else Bits(round(self.bps * num_samples / SAMPLE_RATE), 0)

    def _read(self, path: Path, num_samples: int) -> Samples:
        decoded, _ = read_audio(path, SAMPLE_RATE)
        seconds, wanted = (decoded.size - self.delay) / SAMPLE_RATE, num_samples / SAMPLE_RATE
        if abs(seconds - wanted) > TOLERANCE_S:
            allowed = f"{TOLERANCE_S} s more or less"
            raise AudioError(f"{path.name} has {seconds:.2f} s of an utterance of {wanted:.2f} s; allowed: {allowed}")
        return fit(decoded, num_samples, self.delay)


class Folder(_Foreign):
    """`folder:DIR[?name=X][&bps=N][&delay=MS]`: a file for every utterance, found by its name."""

    def __init__(self, spec: Spec) -> None:
        if spec.argument is None:
            raise ConfigError("folder: which one? allowed: folder:DIR[?name=X][&bps=N][&delay=MS]")
        self.folder = Path(spec.argument).expanduser()
        super().__init__(spec, self.folder.resolve().name)
        self._matching: Matching | None = None

    @cached_property
    def identity(self) -> str:
        """Changes with every file."""
        digest = hashlib.sha256(f"{self.bps} {self.delay}".encode())
        matching = match(self.folder, ())
        for name in matching.extra:  # nothing was asked for, so these are all
            digest.update(name.encode() + hashlib.sha256((self.folder / name).read_bytes()).digest())
        return f"{len(matching.extra)} files {digest.hexdigest()[:16]}"

    def expect(self, utterances: Sequence[str]) -> list[str]:
        self._matching = match(self.folder, utterances)
        if not self._matching.files:
            names = f"wanted: {listed(utterances)}; there: {listed(self._matching.extra) or 'no audio'}"
            raise ConfigError(f"{self.folder} has no file for any utterance ({names})")
        return self._matching.remarks()

    def round_trip(self, audio: Samples, utterance: str) -> tuple[Coded, Samples]:
        if self._matching is None:
            self.expect([utterance])
        assert self._matching is not None
        if utterance not in self._matching.files:
            raise AudioError(f"{self.folder} has no file for {utterance}")
        decoded = self._read(self._matching.files[utterance], audio.size)
        bits = self._bits(audio.size)
        return Coded(decoded, audio.size, bits, bits.total if bits else None), decoded

    def encode(self, audio: Samples) -> Coded:
        raise ConfigError(f"{self.name} is audio that is decoded already; allowed here: a codec that can be run")

    def decode(self, coded: Coded) -> Samples:
        raise ConfigError(f"{self.name} is audio that is decoded already; allowed here: a codec that can be run")


class Command(_Foreign):
    """`command:LINE[?name=X][&bps=N][&delay=MS][&timeout=S]`: LINE is run by the shell for every utterance.

    {in} is a WAV file of 16 kHz, {out} the WAV or FLAC file that the line writes, at any rate, {bits} a file whose size
    counts as what is transmitted. A suffix may follow: `opusenc {in} {bits}.opus && opusdec {bits}.opus {out}`.
    """

    options = (*_Foreign.options, "timeout")

    def __init__(self, spec: Spec) -> None:
        line = spec.argument or ""
        super().__init__(spec, line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1]}…")
        if "{in}" not in line or "{out}" not in line:
            raise ConfigError(f"command:{line}; allowed: a line with {{in}} and {{out}}, and {{bits}} if bits count")
        if "{bits}" in line and self.bps is not None:
            raise ConfigError(f"{self.name}: both {{bits}} and bps; allowed: one of them")
        self.line = line
        self.timeout = self._number(spec, "timeout") or TIMEOUT_S

    @cached_property
    def identity(self) -> str:
        """The line, and what every file in it is: its program, its script, its weights."""
        try:
            words = shlex.split(self.line)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {str(error).lower()}; allowed: a line that a shell can read") from None
        found = {word: path for word in words if (path := shutil.which(word) or word) and Path(path).is_file()}
        files = " ".join(f"{Path(word).name} {fingerprint(Path(path))}" for word, path in found.items())
        return f"{self.line} bps {self.bps} delay {self.delay} ({files})"

    def encode(self, audio: Samples) -> Coded:
        """Runs the whole line: what is heard is there already, as the payload."""
        with tempfile.TemporaryDirectory(prefix="dtm-command-") as temporary:
            folder = Path(temporary)
            write_audio(folder / "in.wav", audio, SAMPLE_RATE)
            self._run(folder)
            if not (folder / "out.wav").is_file():
                raise ProgramError(f"{self.title!r} wrote no {{out}}")
            decoded = self._read(folder / "out.wav", audio.size)
            bits = self._bits(audio.size)
            if "{bits}" in self.line:
                written = [path.stat().st_size for path in folder.glob("bits*") if path.is_file()]
                if not written:
                    raise ProgramError(f"{self.title!r} wrote no {{bits}}")
                bits = Bits(8 * sum(written), 0)
        return Coded(decoded, audio.size, bits, bits.total if bits else None)

    def decode(self, coded: Coded) -> Samples:
        return fit(coded.payload, coded.num_samples)

    def _run(self, folder: Path) -> None:
        line = self.line
        for mark, name in (("{in}", "in.wav"), ("{out}", "out.wav"), ("{bits}", "bits")):
            line = line.replace(mark, shlex.quote(str(folder / name)))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(line, shell=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
            try:
                _, printed = process.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                raise ProgramError(f"{self.title!r} took more than {self.timeout:g} s; allowed: timeout=S") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # the shell, and what it has started
        if process.returncode:
            said = printed.decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else f"status {process.returncode}"
            raise ProgramError(f"{self.title!r} failed: {reason}")
