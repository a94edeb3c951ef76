"""The contents of masks and label arrays."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from etl.pictures.images import RejectedError
from etl.sources.companions import MAX_LABELS, read_array
from tests.support.encoding import npy


@given(
    arrays.arrays(
        st.sampled_from(["bool", "int8", "uint8", ">i4", "<u4", "int64", "uint64", "float16", "float64"]),
        st.one_of(
            st.tuples(st.integers(0, 30)),
            st.tuples(st.just(1), st.integers(0, 30)),
            st.tuples(st.integers(0, 30), st.just(1)),
        ),
        elements=st.integers(0, 100).map(lambda value: value % 2) | st.integers(0, 1),
    )
)
def test_numbers_match_the_array(array: Any) -> None:
    found = read_array(npy(array))
    assert found == [int(value) for value in array.ravel()]
    assert all(type(value) is int for value in found)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        ([3, 17, 2**31 - 1, -(2**31)], [3, 17, 2**31 - 1, -(2**31)]),
        (np.array([2.0, -1.0], np.float32), [2, -1]),
        ([True, False, True], [1, 0, 1]),
        (np.zeros((1, 0), int), []),
        (np.asfortranarray([[1], [2]]), [1, 2]),
    ],
)
def test_arrays_of_labels_are_read(array: Any, wanted: list[int]) -> None:
    assert read_array(npy(array)) == wanted


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is not an .npy file of numbers"),
        (b"junk", "it is not an .npy file of numbers"),
        (npy([1, 2])[:-1], "it is truncated: it should have 2 numbers"),
        (npy([1, 2])[:20], "it is not an .npy file of numbers"),
        (npy([_Payload()], allow_pickle=True), "it has object instead of numbers"),
        (npy(["a"]), "it has <U1 instead of numbers"),
        (npy([1j]), "it has complex128 instead of numbers"),
        (npy(5), "its shape is () instead of one row"),
        (npy([[1, 2], [3, 4]]), "its shape is (2, 2) instead of one row"),
        (npy([1.5]), "not all of its numbers are whole"),
        (npy([np.nan]), "not all of its numbers are whole"),
        (npy([np.inf]), "not all of its numbers are whole"),
        (npy([2**31]), "not all of its numbers fit into 32 bits"),
        (npy([1e300]), "not all of its numbers fit into 32 bits"),
        (npy(np.zeros(MAX_LABELS + 1, bool)), "it has 65537 numbers, more than 65536"),
        (npy([1]).replace(b"(1,), }", b"(9**99,)}"), "it is not an .npy file of numbers"),
        (npy([1]).replace(b"(1,), }     ", b"(-1,), }    "), "its shape is (-1,) instead of one row"),
    ],
)
def test_bad_arrays_are_rejected(data: bytes, words: str) -> None:
    with pytest.raises(RejectedError) as caught:
        read_array(data)
    assert str(caught.value) == f"bad label array: {words}"


@given(st.binary(max_size=200), st.integers(0, 150))
def test_damaged_arrays_are_rejected_or_read(junk: bytes, at: int) -> None:
    data = npy(list(range(5)))
    for damaged in (data[:at] + junk, data[:at] + junk + data[at + len(junk) :], b"\x93NUMPY\x01\0" + junk):
        with contextlib.suppress(RejectedError):
            assert all(type(number) is int for number in read_array(damaged))
