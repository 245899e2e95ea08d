"""A tiny untrained codec, a small prepared listening test, and a server that is up while a test runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("pyloudnorm")

from fastapi import FastAPI
from fastapi.testclient import TestClient
from web_support import ADMIN, make_prepared, served

from dtm_codec import DTMCodec
from dtm_codec.audio import Samples, read_audio, sample_path
from dtm_codec.config import preset
from dtm_codec.web.app import create_app
from dtm_codec.web.demo import Demo
from dtm_codec.web.listening.routes import RunningTest


@pytest.fixture(scope="session")
def codec() -> DTMCodec:
    torch.manual_seed(0)
    small = {"dim": 32, "heads": 2, "mlp_hidden": 48}
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    return DTMCodec(dataclasses.replace(preset("s-vfr-50"), **small, **layers)).eval()


@pytest.fixture(scope="session")
def speech() -> Samples:
    """3.3 s at 16 kHz."""
    return read_audio(sample_path("amiable"))[0]


@pytest.fixture
def demo_client(codec: DTMCodec) -> TestClient:
    return TestClient(create_app(Demo(codec, "tiny", max_seconds=5)), base_url="http://localhost")


@pytest.fixture
def prepared_folder(tmp_path: Path, speech: Samples) -> Path:
    make_prepared(tmp_path, speech)
    return tmp_path / "test"


@pytest.fixture
def running(prepared_folder: Path) -> Iterator[RunningTest]:
    test = RunningTest(prepared_folder)
    yield test
    test.store.close()


@pytest.fixture
def listening_client(running: RunningTest) -> TestClient:
    return TestClient(create_app(listening=running, admin_token=ADMIN), base_url="http://localhost")


@pytest.fixture
def serve() -> Callable[[FastAPI], AbstractContextManager[str]]:
    return served
