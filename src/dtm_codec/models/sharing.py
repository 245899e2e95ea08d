"""A model to the Hugging Face hub, with a card that says what it is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import ModelError
from ..system.files import write_atomically
from ..system.optional import import_optional
from .card import model_card
from .hub import read_folder

CARD = "README.md"


class Sharing(ABC):
    """What `DTMCodec` does with the hub."""

    @abstractmethod
    def save_pretrained(self, *args: Any, **kwargs: Any) -> str: ...

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        license: str | None = None,
        notes: str = "",
        commit_message: str = "A DTM-Codec",
        api: Any = None,
    ) -> str:
        """Upload to the Hugging Face hub, where `from_pretrained(repo_id)` finds it; returns the commit's address.

        license, notes: for the model card, such as 'cc-by-4.0' and what it was trained on, in Markdown. A card that is
        there already stays. api: a `huggingface_hub.HfApi` of your own
        """
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
            raise ModelError(f"repo_id = {repo_id!r}; allowed: 'owner/name'")
        hub = api or import_optional("huggingface_hub", "hub").HfApi(token=token)
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, transformers=True)
            card = model_card(read_folder(Path(folder)), repo_id, license=license, notes=notes)
            try:
                hub.create_repo(repo_id, private=private, exist_ok=True)
                if not hub.file_exists(repo_id, CARD):  # what an owner wrote there stays
                    write_atomically(Path(folder) / CARD, card.encode())
                commit = hub.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=commit_message)
            except Exception as error:  # whatever the network or the hub answers, the user gets one line
                line = " ".join(str(error).split())[:300]
                raise ModelError(f"cannot push to {repo_id!r}: {type(error).__name__}: {line}") from error
        return str(getattr(commit, "commit_url", commit))
