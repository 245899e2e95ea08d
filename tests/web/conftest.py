"""A tiny untrained codec, a small prepared listening test, clients of both. Without the extra, nothing is collected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dtm_codec.speech.audio import Samples, read_audio, sample_path

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from dtm_codec import DTMCodec
    from dtm_codec.web.listening.routes import RunningTest

NEEDED = ("fastapi", "uvicorn", "websockets", "httpx", "yaml", "scipy", "pyloudnorm")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["test_*.py", "offline/test_*.py"]


@pytest.fixture(scope="session")
def codec() -> DTMCodec:
    import torch

    from dtm_codec import DTMCodec
    from dtm_codec.config import preset

    torch.manual_seed(0)
    small = {"dim": 32, "heads": 2, "mlp_hidden": 48}
    layers = dict.fromkeys(("enc1_layers", "enc2_layers", "dec1_layers", "dec2_layers"), 1)
    return DTMCodec(dataclasses.replace(preset("s-vfr-50"), **small, **layers))


@pytest.fixture(scope="session")
def live_codec(codec: DTMCodec) -> DTMCodec:
    """The same with the look-ahead of configs/small/live.yaml."""
    import torch

    from dtm_codec import DTMCodec

    torch.manual_seed(0)
    ahead = {"enc1_lookahead": 1, "enc2_lookahead": 0, "dec1_lookahead": 0, "dec2_lookahead": 3}
    return DTMCodec(dataclasses.replace(codec.config, **ahead))


@pytest.fixture(scope="session")
def speech() -> Samples:
    """3.3 s at 16 kHz."""
    return read_audio(sample_path("amiable"))[0]


@pytest.fixture
def client() -> Callable[[Any], TestClient]:
    """A client of an application, as a browser on the same machine would be."""
    from fastapi.testclient import TestClient

    return lambda app: TestClient(app, base_url="http://localhost")


@pytest.fixture
def demo_client(codec: DTMCodec, client: Callable[[Any], TestClient]) -> TestClient:
    from dtm_codec.web.app import create_app
    from dtm_codec.web.demo import Demo

    return client(create_app(Demo(codec, max_seconds=5)))


@pytest.fixture
def running(tmp_path: Path, speech: Samples) -> Iterator[RunningTest]:
    from web_support import make_prepared

    from dtm_codec.web.listening.routes import RunningTest

    make_prepared(tmp_path, speech)
    test = RunningTest(tmp_path / "test")
    yield test
    test.store.close()


@pytest.fixture
def listening_client(running: RunningTest, client: Callable[[Any], TestClient]) -> TestClient:
    from web_support import ADMIN

    from dtm_codec.web.app import create_app

    return client(create_app(listening=running, admin_token=ADMIN))
