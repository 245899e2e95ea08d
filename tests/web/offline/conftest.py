"""One Node for all tests of the page's scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_support import Node, running_node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running_node() as node:
        yield node
