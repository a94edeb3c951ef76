"""Remarks about class names."""

from etl.ingest.class_remarks import NewClasses, describe_empty, describe_similar, similar_classes


def test_new_classes_of_a_known_dataset_are_listed_with_their_numbers() -> None:
    known = [f"{number}" for number in range(10)]
    new = NewClasses.of(["1", "b", "a"], dataset="digits", known=known, numbers={"1": 1, "a": 10, "b": 11})
    assert str(new) == "dataset 'digits' had 10 classes; 2 new: a = 10, b = 11"
    assert new is not None
    assert (new.before, new.new, new.first) == (10, 2, {"a": 10, "b": 11})
    many = NewClasses.of("abcdefg", dataset="digits", known=known)
    assert str(many) == (
        "dataset 'digits' had 10 classes, none of them in this source; 7 new: a, b, c, d, e, ... "
        "(if these images belong to another dataset, use other tables and set --dataset)"
    )
    assert "1 new: 'a ' = 10" in str(NewClasses.of(["1", "a "], dataset="d", known=known, numbers={"a ": 10}))
    assert NewClasses.of(["1"], dataset="digits", known=known) is None
    assert NewClasses.of(["a"], dataset="digits", known=[]) is None


def test_classes_without_images_are_named() -> None:
    assert describe_empty(["a"]) == "1 class has no images: 'a'"
    assert describe_empty("abcdef") == "6 classes have no images: 'a', 'b', 'c', 'd', 'e', ..."


def test_class_names_that_look_alike_are_grouped_with_their_counts() -> None:
    images = {"cat": 400, "Cat ": 3, "dog": 5, "stra\u00dfe": 1, "caf\u00e9": 2, "Cafe\u0301": 0, "\ufb01sh": 1}
    groups = similar_classes(images, known=["dog", "STRASSE", "fish", "bird", "Bird"])
    assert groups == [
        {"Cafe\u0301": 0, "caf\u00e9": 2},
        {"Cat ": 3, "cat": 400},
        {"STRASSE": 0, "stra\u00dfe": 1},
        {"fish": 0, "\ufb01sh": 1},
    ]
    assert describe_similar(groups[1:2]) == (
        "class names that differ only in surrounding blanks, case or Unicode form: "
        "'Cat ' (3 images) and 'cat' (400 images)"
    )
    assert describe_similar(groups * 2).endswith(", and 3 more")
    assert "'fish' (0 images) and '\\ufb01sh' (1 image)" in describe_similar(groups)
    assert similar_classes({"a": 1, "b": 2}) == []
