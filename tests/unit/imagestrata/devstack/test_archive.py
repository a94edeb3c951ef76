"""The zip that goes to executors."""

import zipfile
from pathlib import Path

from imagestrata.devstack import archive


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for package in archive.PACKAGES:
        (tmp_path / package / "__pycache__").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "__pycache__" / "x.pyc").write_text("")
    (tmp_path / "schemas" / "tables.cql").write_text("CREATE TABLE")
    assert archive.write(tmp_path / "build" / "a.zip", tmp_path) == 5
    (tmp_path / "etl" / "__init__.py").touch()
    archive.write(tmp_path / "build" / "b.zip", tmp_path)
    assert (tmp_path / "build/a.zip").read_bytes() == (tmp_path / "build/b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "build" / "a.zip") as written:
        assert "schemas/tables.cql" in written.namelist()
