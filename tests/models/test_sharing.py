"""Models on the hub: a folder that others load, with a card; without network, through an API object of the test."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml

from dtm_codec import DTMCodec
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.config import preset
from dtm_codec.errors import ModelError

TINY = {"dim": 32, "heads": 2, "mlp_hidden": 48, "enc1_layers": 1, "enc2_layers": 1, "dec1_layers": 1, "dec2_layers": 1}


@dataclass
class FakeHub:
    """Repositories as folders."""

    root: Path
    private: dict[str, bool | None] = field(default_factory=dict)
    refuses: Exception | None = None

    def create_repo(self, repo_id: str, *, private: bool | None, exist_ok: bool) -> None:
        if self.refuses:
            raise self.refuses
        assert exist_ok
        self.private[repo_id] = private
        (self.root / repo_id).mkdir(parents=True, exist_ok=True)

    def file_exists(self, repo_id: str, filename: str) -> bool:
        return (self.root / repo_id / filename).exists()

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}/commit/{commit_message}"

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        self.asked = options
        return str(self.root / repo_id)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    hub = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


@pytest.fixture
def codec() -> DTMCodec:
    torch.manual_seed(0)
    codec = DTMCodec(replace(preset("s-vfr-50"), **TINY))
    codec.network.tau.fill_(0.3)
    codec.trained_bitrates = (450.0, 1300.0)
    return codec


def test_what_was_pushed_is_found_under_its_name(codec: DTMCodec, fake: FakeHub) -> None:
    codec.token_model = TokenModel.from_counts(np.ones(16_384))
    assert codec.push_to_hub("me/codec", private=True, api=fake) == "https://hub/me/codec/commit/A DTM-Codec"
    assert fake.private == {"me/codec": True}
    loaded = DTMCodec.from_pretrained("me/codec@v2")
    assert fake.asked["revision"] == "v2"
    assert loaded.model_id == codec.model_id
    assert loaded.trained_bitrates == (450.0, 1300.0)
    assert loaded.token_model is not None
    audio = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    assert loaded.encode(audio, 16_000) == codec.encode(audio, 16_000)


def test_the_card_says_what_the_model_is(codec: DTMCodec, fake: FakeHub) -> None:
    codec.push_to_hub("me/codec", license="cc-by-4.0", notes="Trained on *my* voice.", api=fake)
    card = (fake.root / "me/codec/README.md").read_text()
    _, metadata, text = card.split("---\n", 2)
    parsed = yaml.safe_load(metadata)
    assert (parsed["license"], parsed["library_name"]) == ("cc-by-4.0", "dtm-codec")
    assert text.startswith("\n# codec\n")
    for fact in (
        "Trained on *my* voice.",
        f"`{codec.model_id}`",
        f"{codec.num_parameters / 1e6:.1f} M",
        "50 a second on average, variable rate (selector `ple`)",
        "16384 codes (vq), 14 bits a token",
        "450 to 1300 bits a second",
        "without token statistics",
        'DTMCodec.from_pretrained("me/codec")',
    ):
        assert fact in text, fact


def test_a_card_that_an_owner_has_written_stays(codec: DTMCodec, fake: FakeHub) -> None:
    codec.push_to_hub("me/codec", api=fake)
    (fake.root / "me/codec/README.md").write_text("mine")
    with torch.no_grad():
        codec.network.head.project.bias.add_(0.1)
    codec.push_to_hub("me/codec", api=fake)
    assert (fake.root / "me/codec/README.md").read_text() == "mine"
    assert DTMCodec.from_pretrained("me/codec").model_id == codec.model_id


@pytest.mark.parametrize("repo_id", ["codec", "me/codec/x", "me/", "../x y"])
def test_names_that_the_hub_cannot_have_are_refused(codec: DTMCodec, fake: FakeHub, repo_id: str) -> None:
    with pytest.raises(ModelError, match="allowed: 'owner/name'"):
        codec.push_to_hub(repo_id, api=fake)
    assert fake.private == {}


def test_what_the_hub_answers_is_one_line(codec: DTMCodec, fake: FakeHub) -> None:
    fake.refuses = PermissionError("403:\n you may not")
    with pytest.raises(ModelError) as caught:
        codec.push_to_hub("me/codec", api=fake)
    assert str(caught.value) == "cannot push to 'me/codec': PermissionError: 403: you may not"
