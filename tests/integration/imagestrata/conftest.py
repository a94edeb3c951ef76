"""A dataset service in a separate process, for all tests of a module."""

import re
from collections.abc import Iterator

import pytest

from tests.support.dataset_servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("service") / "root") as server:
        yield server


@pytest.fixture
def name(server: Server, request: pytest.FixtureRequest) -> str:
    """A new dataset for one test."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:90].strip("-")
    server.create(name)
    return name
