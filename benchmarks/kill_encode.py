"""Kills `dtm-codec encode` of a folder again and again, and looks at what it leaves.

    python benchmarks/kill_encode.py --kills 50

Every `.dtm` file must be whole at any time, what was there before a kill must stay, and after a run that was let
through there must be nothing but the files that were asked for. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dtm_codec import DTMCodec
from dtm_codec.speech.audio import read_audio, sample_path, write_audio

FILES = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    choose, codec = random.Random(0), DTMCodec.from_pretrained()
    speech, rate = read_audio(sample_path())
    problems, leftovers, done = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "in", Path(folder) / "out"
        inputs.mkdir()
        outputs.mkdir()
        for number in range(FILES):
            write_audio(inputs / f"{number:02d}.wav", speech[: rate // 2 + 1000 * number], rate)
        command = [sys.executable, "-m", "dtm_codec", "encode", str(inputs), "-o", str(outputs)]
        whole: dict[str, bytes] = {}
        for kill in range(options.kills):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 600
            while process.poll() is None and time.monotonic() < deadline:  # the next file is being written
                if len(list(outputs.glob("[0-9]*.dtm"))) > len(whole):
                    break
                time.sleep(0.002)
            time.sleep(choose.uniform(0, 0.3))
            process.kill()
            process.wait()
            leftovers += len(list(outputs.glob(".*")))
            for path in sorted(outputs.glob("[0-9]*.dtm")):
                data = path.read_bytes()
                try:
                    codec.from_bytes(data)
                except ValueError as error:
                    problems.append(f"kill {kill}: {path.name}: {error}")
                if whole.setdefault(path.name, data) != data:
                    problems.append(f"kill {kill}: {path.name} changed")
            if missing := whole.keys() - {path.name for path in outputs.iterdir()}:
                problems.append(f"kill {kill}: {missing} lost")
            if len(whole) >= FILES - 2:  # begin anew before all is done
                done += len(whole)
                whole.clear()
                for path in outputs.iterdir():
                    path.unlink()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        left = {path.name for path in outputs.iterdir()} - {f"{number:02d}.dtm" for number in range(FILES)}
        count = len(list(outputs.iterdir()))
        if left or count != FILES:
            problems.append(f"after the last run: {count} of {FILES} files, and {left}")
    print(
        f"{options.kills} kills, {done + count} files written, {leftovers} temporary files found after kills, "
        f"{len(left)} after the last run, {len(problems)} problems"
    )
    print("\n".join(problems))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
