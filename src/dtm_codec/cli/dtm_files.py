"""Reading `.dtm` files: is it one, does it claim more than it may, and which model made it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BitstreamError, ModelError
from . import options
from .facts import FileFacts, facts_of

if TYPE_CHECKING:
    from ..codec import DTMCodec
    from ..config import BackendName, CodecConfig
    from ..encoded import Encoded

DTM = ".dtm"


class Opened(NamedTuple):
    codec: DTMCodec
    """Of the model that made the file."""
    encoded: Encoded
    facts: FileFacts


def check_signature(path: Path) -> None:
    """Refuse a file of another kind by its first bytes."""
    from ..bitstream.header import SIGNATURE_BYTES
    from ..bitstream.header import check_signature as check

    with path.open("rb") as file:
        start = file.read(SIGNATURE_BYTES)
    try:
        check(start)
    except BitstreamError as error:
        raise BitstreamError(f"{path}: {error}") from error


def checked_facts(data: bytes, max_hours: float | None) -> FileFacts:
    """What a file says and costs, if it does not claim to be longer than it may be."""
    from ..bitstream.claims import ClaimLimit
    from ..bitstream.container import inspect

    return facts_of(inspect(data, ClaimLimit(max_hours)))


def opener(
    model: str | None, max_hours: float | None, device: str = "cpu", backend: BackendName | None = None
) -> Callable[[bytes], Opened]:
    """From the bytes of a file to its content; models are loaded when they are first needed."""
    from ..bitstream.container import read_header

    codec_for = codec_finder(model, device, backend)

    def open_bytes(data: bytes) -> Opened:
        header = read_header(data)
        codec = codec_for(header.model_id)
        codec.check_layout(header.layout)
        return Opened(codec, codec.from_bytes(data, max_hours=max_hours), checked_facts(data, max_hours))

    return open_bytes


def bundled_configs() -> dict[Path, CodecConfig]:
    """Of all bundled models, by folder. Their weights, which tell their full ids, would take seconds to read."""
    from ..config import read_model_config
    from ..models import hub

    return {folder: read_model_config(folder / hub.CONFIG_FILE)[0] for folder in hub.bundled_models().values()}


def codec_finder(
    model: str | None, device: str, backend: BackendName | None = None, *, in_torch: bool = False
) -> Callable[[str], DTMCodec]:
    """From a file's model id to the codec that decodes it: the one asked for, or the bundled one of that id."""
    from ..models import hub

    if model is not None:
        chosen = options.load_codec(model, device, backend, in_torch=in_torch)

        def check(model_id: str) -> DTMCodec:
            if model_id != chosen.model_id:
                raise ModelError(f"made by model {model_id!r}; {model!r} is {chosen.model_id!r}")
            return chosen

        return check
    codecs: dict[str, DTMCodec] = {}

    def find(model_id: str) -> DTMCodec:
        known: list[str] = []
        configs, name = {} if model_id in codecs else bundled_configs(), model_id.partition(":")[0]
        for folder in sorted(configs, key=lambda folder: configs[folder].name != name):  # the likely one first
            loaded = hub.read_folder(folder)
            known.append(repr(loaded.model_id))
            if loaded.model_id == model_id:
                codecs[model_id] = options.load_codec(loaded, device, backend, in_torch=in_torch)
                break
        if model_id not in codecs:
            bundled = ", ".join(known) or "none"
            raise ModelError(f"made by model {model_id!r}; bundled: {bundled}; give the folder of its model by --model")
        return codecs[model_id]

    return find
