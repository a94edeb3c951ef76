"""Folders as tars: any part of one can be read without the rest."""

import io
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from imagestrata.hub.tar import FolderSource
from tests.support.dataset_files import FILES, written


@settings(max_examples=40, deadline=None)
@given(files=FILES, places=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_range_of_the_tar_of_a_folder_can_be_read(files: dict[str, bytes], places: tuple[float, float]) -> None:
    with tempfile.TemporaryDirectory() as there:
        source = FolderSource(written(Path(there), files))
        whole = b"".join(source.blocks(0, source.length))
        start, end = sorted(int(place * source.length) for place in places)
        assert b"".join(source.blocks(start, end)) == whole[start:end]
        assert len(whole) == source.length
        assert source.length % tarfile.RECORDSIZE == 0
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:", encoding="utf-8") as tar:
            found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
            assert found == files
            assert list(found) == sorted(found, key=str.encode)
            assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in tar} == {(0, 0, 0, "", 0o644)}
