"""Which trees seem to have their classes in deeper folders."""

import itertools

import pytest

from formats.class_level import Reading, doubt_of, is_possible


def _counts(*levels: str, each: int = 10) -> dict[str, int]:
    """Folders with names for each level, and this many images in each."""
    return {"/".join(names): each for names in itertools.product(*(level.split() for level in levels))}


def _tops(counts: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Images and deeper images of the topmost folders."""
    tops: dict[str, tuple[int, int]] = {}
    for path, count in counts.items():
        top, slash, _ = path.partition("/")
        images, deeper = tops.get(top, (0, 0))
        tops[top] = images + count, deeper + count * len(slash)
    return tops


@pytest.mark.parametrize(
    ("counts", "readings"),
    [
        pytest.param(
            _counts("train val", "a b c"),
            [Reading("", ("train", "val"), 3, 60), Reading("", ("train",), 3, 30), Reading("", ("val",), 3, 30)],
            id="splits",
        ),
        pytest.param(
            {**_counts("TRAIN Test", "a b"), "labels": 1, "README": 1, ".cache": 500, "__MACOSX/TRAIN/a": 500},
            [Reading("", ("TRAIN", "Test"), 2, 40), Reading("", ("TRAIN",), 2, 20), Reading("", ("Test",), 2, 20)],
            id="splits in other letters, beside a few other files",
        ),
        pytest.param(
            _counts("one two three", "a b"),
            [
                Reading("", ("one", "three", "two"), 2, 60),
                Reading("", ("one",), 2, 20),
                Reading("", ("three",), 2, 20),
            ],
            id="folders that repeat",
        ),
        pytest.param(
            {**_counts("train", "a b c")}, [Reading("", ("train",), 3, 30), Reading("train", (), 3, 30)], id="one split"
        ),
        pytest.param(
            _counts("train", "n1 n2 n3", "images") | {"val/images": 9, "test/images": 9},
            [Reading("", ("train",), 3, 30)],
            id="only one of the splits has classes",
        ),
        pytest.param(
            _counts("imagenet21k_resized", "imagenet21k_train", "n1 n2"),
            [
                Reading("imagenet21k_resized", ("imagenet21k_train",), 2, 20),
                Reading("", ("imagenet21k_resized/imagenet21k_train",), 2, 20),
                Reading("imagenet21k_resized/imagenet21k_train", (), 2, 20),
            ],
            id="one folder in one folder",
        ),
        pytest.param(
            _counts("imagenet21k_resized", "imagenet21k_train imagenet21k_val", "n1 n2"),
            [
                Reading("imagenet21k_resized", ("imagenet21k_train", "imagenet21k_val"), 2, 40),
                Reading("imagenet21k_resized", ("imagenet21k_train",), 2, 20),
                Reading("", ("imagenet21k_resized/imagenet21k_train",), 2, 20),
            ],
            id="splits in one folder",
        ),
        pytest.param(
            _counts("outer", "a b"),
            [Reading("outer", (), 2, 20), Reading("", ("outer",), 2, 20)],
            id="an outer folder",
        ),
        pytest.param(
            _counts("train val", "images", "a b"),
            [
                Reading("", ("train/images", "val/images"), 2, 40),
                Reading("", ("train/images",), 2, 20),
                Reading("", ("val/images",), 2, 20),
            ],
            id="a folder in each split",
        ),
        pytest.param(_counts("train val"), [Reading("", ("train", "val"), 0, 20)], id="splits without classes"),
        pytest.param(
            _counts("images", "train val"),
            [Reading("images", ("train", "val"), 0, 20)],
            id="splits without classes, in a folder",
        ),
        pytest.param(_counts("a", "b", "c"), [Reading("a/b/c", (), 0, 10)], id="no classes at all"),
    ],
)
def test_folders_above_the_classes_are_told_with_the_likely_readings(
    counts: dict[str, int], readings: list[Reading]
) -> None:
    assert is_possible(_tops(counts))
    doubt = doubt_of(counts)
    assert doubt is not None
    assert list(doubt.readings) == readings


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param(_counts("cat dog"), id="images directly in classes"),
        pytest.param(_counts("cat"), id="one class"),
        pytest.param(_counts("train tram bus"), id="a class that is called train"),
        pytest.param({f"{name}/{name}{i}": 5 for name in "abc" for i in range(9)}, id="patients"),
        pytest.param({"a/p1": 5, "a/p2": 5, "b/p2": 5, "b/p3": 5, "b/p4": 5, "a/p5": 5}, id="a patient of two classes"),
        pytest.param(_counts("n1 n2 n3", "images"), id="the same folder in each class"),
        pytest.param({**_counts("a b", "x y"), "a": 5, "b": 5}, id="images beside deeper folders"),
        pytest.param({"": 5}, id="no folders"),
        pytest.param({}, id="nothing"),
    ],
)
def test_class_folders_pass(counts: dict[str, int]) -> None:
    assert doubt_of(counts) is None


def test_cut_paths_are_enough() -> None:
    full = _counts("train val", "a b", "p1 p2", "s1 s2", each=1)
    cut: dict[str, int] = {}
    for path, count in full.items():
        cut["/".join(path.split("/")[:2])] = cut.get("/".join(path.split("/")[:2]), 0) + count
    assert doubt_of(cut) == doubt_of(full)


def test_folders_are_counted_only_where_that_can_tell_something() -> None:
    assert not is_possible({"a": (50, 25), "b": (50, 25)})
    assert not is_possible({"a": (100, 0)})
    assert not is_possible({".a": (100, 100)})
    assert not is_possible({})
    assert is_possible({"a": (100, 60)})
    assert is_possible({"train": (50, 0), "VAL": (50, 0)})
