"""Errors of the loader."""

import importlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import loader
from tests.support.pictures import picture


def test_each_error_pickles() -> None:
    for error in (getattr(loader, name) for name in loader.__all__ if name.endswith("Error")):
        assert str(pickle.loads(pickle.dumps(error("Wanted this. Found: that")))) == "Wanted this. Found: that"


@pytest.mark.parametrize(
    ("library", "use", "command"),
    [
        ("pandas", lambda folder: folder.to_pandas(), "pip install pandas"),
        ("PIL", lambda folder: folder.show(), "pip install pillow"),
        ("torch", lambda folder: loader.ImageDataset, "pip install 'imagestrata[train]'"),
        ("lightning", lambda folder: importlib.import_module("loader.lightning"),
         "pip install 'imagestrata[lightning]'"),
    ],
)  # fmt: skip
def test_a_missing_library_is_named_with_what_installs_it_alone(
    library: str, use: Callable[[loader.Folder], object], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(picture(1))
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "loader.lightning", raising=False)
    with pytest.raises(loader.MissingExtraError) as error:
        use(loader.open_folder(tmp_path))
    assert str(error.value).startswith(f"Wanted {library} for ")
    assert str(error.value).endswith(f"Install it: {command}")
