"""When a correction of a label belongs to what an image is."""

import pytest

from etl.labels.corrections import Seen, State, is_replaced


@pytest.mark.parametrize(
    ("seen", "now", "wanted"),
    [
        (Seen(2, b"a", 0), State(1, b"a", 0), False),
        (Seen(2, b"a", 0), State(3, b"b", 0), True),  # other bytes
        (Seen(2, b"a", 0), State(3, b"a", 1), True),  # another class
        (Seen(2, b"a", 0), State(9, b"a", 0), False),  # it was deleted and restored, or replaced and restored
        (Seen(2, b"a", 0), State(1, b"b", 0), True),  # a run before had not finished
        (Seen(2, b"", -1), State(1, b"", -1), False),
        (Seen(2), State(2, b"a", 0), False),  # nothing was recorded
        (Seen(2), State(3, b"a", 0), True),
    ],
)
def test_a_correction_belongs_to_the_bytes_and_the_class_that_were_seen(seen: Seen, now: State, wanted: bool) -> None:
    assert is_replaced(seen, now) is wanted
