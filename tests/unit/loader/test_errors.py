"""Errors of the loader."""

import pickle

import loader


def test_each_error_pickles() -> None:
    for error in (getattr(loader, name) for name in loader.__all__ if name.endswith("Error")):
        assert str(pickle.loads(pickle.dumps(error("Wanted this. Found: that")))) == "Wanted this. Found: that"
