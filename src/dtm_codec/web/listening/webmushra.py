"""The same stimuli as a webMUSHRA experiment, for those who host that."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...ratings import REFERENCE
from ...system.files import write_atomically
from ...system.optional import import_optional
from .prepared import ListeningTest

AUDIO = Path("configs") / "resources" / "dtm-codec"
"""Where the audio goes below webMUSHRA's root; its configurations name files from there."""

CONFIG = Path("configs") / "dtm-codec.yaml"


def export(test: ListeningTest, folder: Path, out: Path) -> Path:
    """Write `configs/dtm-codec.yaml` and its audio below `out`, to be copied over a webMUSHRA installation."""
    yaml = import_optional("yaml", "web")
    if test.method != "mushra":
        raise ConfigError(f"{folder} is an {test.method} test; allowed: a test with method: mushra")
    if (out / CONFIG).exists():
        raise ConfigError(f"{out / CONFIG} exists; allowed: a folder without it")
    (out / AUDIO).mkdir(parents=True, exist_ok=True)

    def copied(utterance: str, system: str) -> str:
        source = test.audio_path(folder, utterance, system)
        shutil.copyfile(source, out / AUDIO / source.name)
        return (AUDIO / source.name).as_posix()

    def page(utterance: str, name: str) -> dict[str, Any]:
        return {
            "type": "mushra",
            "id": _identifier(utterance),
            "name": name,
            "content": "Rate each sound against the reference. One of them is the reference itself.",
            "showWaveform": True,
            "enableLooping": True,
            "reference": copied(utterance, REFERENCE),  # webMUSHRA adds the hidden reference by itself
            "createAnchor35": False,  # the prepared anchor is among the stimuli
            "createAnchor70": False,
            "stimuli": {_identifier(s): copied(utterance, s) for s in test.systems if s != REFERENCE},
        }

    volume = {
        "type": "volume",
        "id": "volume",
        "name": "Volume",
        "content": "Set a comfortable volume, and keep it.",
        "stimulus": copied(test.utterances[0], REFERENCE),
        "defaultVolume": 0.5,
    }
    finish = {"type": "finish", "name": "Thank you", "content": "Thank you for listening!", "writeResults": True}
    welcome = html.escape(test.instructions or test.title)  # webMUSHRA takes texts as HTML
    config = {
        "testname": html.escape(test.title),
        "testId": "dtm-codec",
        "bufferSize": 2048,
        "stopOnErrors": True,
        "showButtonPreviousPage": True,
        "remoteService": "service/write.php",
        "pages": [
            {"type": "generic", "id": "welcome", "name": "Welcome", "content": welcome},
            volume,
            *([page(test.training, "Training")] if test.training else []),
            ["random", *(page(utterance, "Trial") for utterance in test.utterances)],
            finish,
        ],
    }
    write_atomically(out / CONFIG, yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())
    return out / CONFIG


def _identifier(name: str) -> str:
    """webMUSHRA makes element ids of names: letters, digits and '-'; any other becomes '_' and its number."""
    return re.sub(r"[^A-Za-z0-9-]", lambda match: f"_{ord(match[0]):x}_", name)
