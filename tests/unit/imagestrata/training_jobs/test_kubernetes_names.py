"""Names and quantities as Kubernetes parses them."""

from decimal import Decimal

import pytest

from imagestrata.training_jobs.kubernetes_names import (
    amount,
    check_image,
    check_key,
    check_label,
    check_label_value,
    check_object_name,
    check_size,
)

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "hub/train:1",
        "ghcr.io/Team-X/train".lower(),
        "localhost:5000/a__b/c-d.e_f:V1.0_x-y",
        "localhost/train",
        "registry:80/train",
        "Registry.Example.COM:443/train",
        "[fd00::1]:5000/train",
        f"train@{DIGEST}",
        f"hub.example/train:1@{DIGEST}",
    ],
)
def test_references_of_images_are_accepted(image: str) -> None:
    check_image(image, "image")


@pytest.mark.parametrize(
    "image",
    [
        "", " busybox", "my image", "Train", "Hub/train", "train:", "train:a:b", "train@sha256:12", "-train", "a//b",
        "hub/", "/train", "a___b", "https://hub/train", "train\n", f"train:{'a' * 129}", f"{'a' * 256}", "a" * 10**6,
    ],
)  # fmt: skip
def test_other_texts_are_no_images(image: str) -> None:
    with pytest.raises(ValueError, match="Wanted image") as caught:
        check_image(image, "image")
    assert len(str(caught.value)) < 300


def test_names_follow_rfc_1123() -> None:
    for name in ("a", "0", "a-1", "a" * 63):
        check_label(name, "it")
        check_object_name(name, "it")
    check_object_name("a.b-c.1", "it")
    check_object_name("a" * 253, "it")
    for name in ("", "-x", "x-", "A", "a_b", "ä", "a\n", "a" * 254):
        for check in (check_label, check_object_name):
            with pytest.raises(ValueError, match="Wanted it"):
                check(name, "it")
    for name in ("a.b", "a" * 64):
        with pytest.raises(ValueError, match="1 to 63"):
            check_label(name, "it")
    with pytest.raises(ValueError, match="1 to 253"):
        check_object_name("a..b", "it")


def test_labels_have_keys_and_values() -> None:
    for key in ("team", "kueue.x-k8s.io/queue-name", "A.b_c-1"):
        check_key(key, "it")
    for key in ("", "/a", "a/", "A/b", "a/b/c", "-a", "a" * 64, f"{'a' * 254}/a"):
        with pytest.raises(ValueError, match="Wanted it"):
            check_key(key, "it")
    for value in ("", "a", "A_b.c-1", "a" * 63):
        check_label_value(value, "it")
    for value in ("a b", "-a", "a" * 64, "a/b"):
        with pytest.raises(ValueError, match="Wanted it"):
            check_label_value(value, "it")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (2, 2), ("0", 0), ("500m", Decimal("0.5")), ("1.5Gi", 3 << 29), ("8G", 8 * 10**9), ("2Ei", 2 << 60),
        ("1e9", 10**9), ("1E2", 100), ("1E", 10**18), (".5k", 500), (1.5, Decimal("1.5")),
    ],
)  # fmt: skip
def test_amounts_have_the_units_of_kubernetes(text: object, value: object) -> None:
    assert amount(text, "it") == value


@pytest.mark.parametrize(
    "text", ["", "8GB", "8 Gi", "-1", "Gi", "1e", "0x10", "1_000", "inf", "1e999", True, None, [], "1\n"]
)
def test_other_texts_are_no_amounts(text: object) -> None:
    with pytest.raises(ValueError, match="Wanted it, a number with a unit"):
        amount(text, "it")


def test_a_volume_has_a_size() -> None:
    check_size("100Gi", "it")
    for size in ("0", "500m", "100GB"):
        with pytest.raises(ValueError, match="Wanted it"):
            check_size(size, "it")
