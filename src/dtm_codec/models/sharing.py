"""A model to the Hugging Face hub, with a card that says what it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import ModelError
from ..system.files import write_atomically
from ..system.optional import import_optional

CARD = "README.md"


def push(
    repo_id: str,
    write: Callable[[str], str],
    *,
    private: bool | None,
    token: str | None,
    message: str,
    api: Any,
) -> str:
    """Upload a model folder in one commit; returns its address. write: fills a folder and returns the card"""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
        raise ModelError(f"repo_id = {repo_id!r}; allowed: 'owner/name'")
    hub = api or import_optional("huggingface_hub", "hub").HfApi(token=token)
    with TemporaryDirectory() as folder:
        card = write(folder)
        try:
            hub.create_repo(repo_id, private=private, exist_ok=True)
            if not hub.file_exists(repo_id, CARD):  # what an owner wrote there stays
                write_atomically(Path(folder) / CARD, card.encode())
            commit = hub.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
        except Exception as error:  # whatever the network or the hub answers, the user gets one line
            line = " ".join(str(error).split())[:300]
            raise ModelError(f"cannot push to {repo_id!r}: {type(error).__name__}: {line}") from error
    return str(getattr(commit, "commit_url", commit))
