"""Functions in a child process: each image gets its own value, whatever the function does with processes."""

from contextlib import closing
from pathlib import Path

import pytest

from etl.errors import FunctionError
from etl.features.computing.child import Child
from etl.features.computing.functions import digest_of
from schemas.feature_sources import Python
from schemas.features import FeatureView

FUNCTIONS = "tests.support.feature_functions"
IMAGES = [b"a" * size for size in (5, 3, 9, 1, 7)]


def view(name: str, kind: str = "bigint") -> FeatureView:
    source = Python(FUNCTIONS, name)
    return FeatureView(name=name, version=1, fields={name: kind}, source=source, digest=digest_of(source))


@pytest.mark.parametrize("name", ["forks", "pools"])
def test_functions_may_have_processes_of_their_own(name: str) -> None:
    with closing(Child(view(name), timeout=30)) as child:
        assert child.values(IMAGES) == [([len(image)], "") for image in IMAGES]


def test_texts_that_cannot_be_stored_cost_only_their_image() -> None:
    with closing(Child(view("texts", "text"), timeout=30)) as child:
        good, broken, long = child.values([b"a", b"aa", b"aaa"])
    assert good == (["a"], "")
    assert broken[0] is long[0] is None
    assert broken[1].startswith(r"Wanted text for texts. Found: '\udce9' at 3, which is not a character")
    assert long[1] == "Wanted at most 1,048,576 bytes for texts. Found: 2,097,152"


def test_a_child_refuses_other_modules_than_those_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "child_sizes.py").write_text(
        "import child_helper\ndef size(image: bytes) -> int:\n    return child_helper.FACTOR * len(image)\n"
    )
    (tmp_path / "child_helper.py").write_text("FACTOR = 2")
    source = Python("child_sizes", "size")
    of_driver = FeatureView(name="size", version=1, fields={"size": "bigint"}, source=source, digest=digest_of(source))
    with closing(Child(of_driver, timeout=30)) as child:
        assert child.values([b"abc"]) == [([6], "")]
    (tmp_path / "child_helper.py").write_text("FACTOR = 3")
    with closing(Child(of_driver, timeout=30)) as child, pytest.raises(FunctionError, match="of one that it imports"):
        child.values([b"abc"])
