"""Downloads of folders as zips."""

from pathlib import Path

import pytest
from starlette.requests import Request

from formats.tar_index import write_index
from imagestrata.service.errors import ConditionError
from imagestrata.service.server.downloads import zipped
from imagestrata.service.stores.store import Blob
from tests.support.dataset_servers import tar_of


def test_a_refused_zip_closes_the_bytes_of_its_version(tmp_path: Path) -> None:
    closed: list[bool] = []
    (tmp_path / "data").write_bytes(tar_of({"a": b"1"}))
    write_index(tmp_path / "data", tmp_path / "index")
    blob = Blob(size=1, read=lambda start, length: b"1", close=lambda: closed.append(True))
    request = Request({"type": "http", "method": "GET", "headers": [(b"if-match", b'"other"')]})
    with pytest.raises(ConditionError):
        zipped(blob, tmp_path / "index", tag='"x"', filename="x.zip", request=request)
    assert closed
