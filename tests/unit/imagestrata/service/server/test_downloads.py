"""Downloads: the bytes of a version are closed, however the response ends."""

from pathlib import Path

import pytest
from starlette.requests import Request

from formats.tar_index import write_index
from imagestrata.service.errors import ConditionError
from imagestrata.service.server import downloads
from imagestrata.service.stores.store import Blob
from tests.support.dataset_servers import tar_of


def test_a_refused_download_closes_its_bytes(tmp_path: Path) -> None:
    closed: list[str] = []
    request = Request({"type": "http", "method": "GET", "headers": [(b"if-match", b'"other"')]})
    (tmp_path / "data").write_bytes(tar_of({"a": b"1"}))
    write_index(tmp_path / "data", tmp_path / "index")
    with pytest.raises(ConditionError):
        downloads.zipped(_blob(closed), tmp_path / "index", tag='"x"', filename="x.zip", request=request)
    with pytest.raises(ConditionError):
        downloads.content(_blob(closed), part=None, tag='"x"', filename="x", kind=downloads.TAR, request=request)
    assert closed == ["closed", "closed"]


def _blob(closed: list[str]) -> Blob:
    return Blob(size=1, read=lambda start, length: b"1", close=lambda: closed.append("closed"))
