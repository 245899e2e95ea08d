"""One Node for all tests of the page's scripts, and the page itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_support import Node, running_node

from dtm_codec.errors import ConfigError
from dtm_codec.web.offline.folder import Files, page_files
from dtm_codec.web.offline.onnxruntime_web import runtime_files


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with running_node() as node:
        yield node


@pytest.fixture(scope="session")
def files() -> Files:
    """The page with the bundled model. onnxruntime-web comes from the cache or from npm."""
    try:
        runtime_files()
    except ConfigError as error:
        pytest.skip(f"needs onnxruntime-web: {error}")
    return page_files("small")
