"""A model to the Hugging Face hub, with a card that says what it is."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from .errors import ModelError
from .files import write_atomically
from .model_card import model_card
from .optional import import_optional

if TYPE_CHECKING:
    from .codec import DTMCodec

CARD = "README.md"


def push(
    codec: DTMCodec,
    repo_id: str,
    *,
    private: bool | None,
    token: str | None,
    license: str | None,
    notes: str,
    message: str,
    dtype: torch.dtype,
    api: Any,
) -> str:
    """Write the model folder for transformers and upload it in one commit; returns the address of the commit."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise ModelError(f"repo_id = {repo_id!r}; allowed: 'owner/name'")
    hub = api or import_optional("huggingface_hub", "hub").HfApi(token=token)
    with TemporaryDirectory() as folder:
        model_id = codec.save_pretrained(folder, dtype, transformers=True)
        try:
            hub.create_repo(repo_id, private=private, exist_ok=True)
            if not hub.file_exists(repo_id, CARD):  # what an owner wrote there stays
                card = model_card(
                    codec.config,
                    repo_id,
                    model_id=model_id,
                    parameters=codec.num_parameters,
                    bitrates=codec.trained_bitrates,
                    has_statistics=codec.token_model is not None,
                    license=license,
                    notes=notes,
                )
                write_atomically(Path(folder) / CARD, card.encode())
            commit = hub.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
        except Exception as error:  # whatever the network or the hub answers, the user gets one line
            raise ModelError(f"cannot push to {repo_id!r}: {type(error).__name__}: {_line(error)}") from error
    return str(getattr(commit, "commit_url", commit))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
