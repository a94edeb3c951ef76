"""Dataset names that may be misspelt."""

import pytest

from imagestrata.hub.names import near_names


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("imagnet", "imagenet"),
        ("imagenette", "imagenet"),
        ("minst", "mnist"),
        ("ImageNet", "imagenet"),
        ("my-dataset", "my_dataset"),
        ("Run_1", "run-1"),
        ("digits-trian", "digits-train"),
    ],
)
def test_a_slip_is_near(name: str, other: str) -> None:
    assert near_names(name, ["zebra", other, name]) == [other]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("run-1", "run-2"),
        ("cifar10", "cifar100"),
        ("set-a", "set-b"),
        ("digits-train", "digits-test"),
        ("digits-train", "digits-val"),
        ("cats", "dogs"),
        ("x", "y"),
        ("a-name-of-many-words-that-ends-here", "a-name-of-many-words-that-ends-there-too"),
    ],
)
def test_other_names_and_series_are_not_near(name: str, other: str) -> None:
    assert near_names(name, [other]) == []


def test_the_nearest_three_come_first() -> None:
    names = ["imagenette", "imagenets", "imagenet-", "imagene", "other"]
    assert near_names("imagenet", names) == ["imagenet-", "imagene", "imagenets"]
