"""Fixtures of the training tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Bits are compared, and sums of several threads may be rounded in another order. For the session: runs that a
    module's tests share are made before any fixture of a single test."""
    torch.set_num_threads(1)
