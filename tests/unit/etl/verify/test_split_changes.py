"""The report of what has changed of a split."""

from etl.verify.split_changes import SplitChanges


def test_one_is_one_image() -> None:
    changes = SplitChanges(
        split="splits/one", metadata_table="ks.metadata", images=1, sequence=None, as_of=None, counts={}, changes=[],
        unchecked=[], seconds=1.0,
    )  # fmt: skip
    assert str(changes) == "compared 1 image of splits/one with ks.metadata, in 1.0 s: nothing has changed"
