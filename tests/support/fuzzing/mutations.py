"""Damaged copies of good inputs, each from its number."""

import random
from collections.abc import Sequence

_BYTES = b"\x00\x01\x7f\x80\xff\"'\\/.,:;-+ \n\r\t{}[]()<>0129aeE"
_WORDS = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"18446744073709551616", b"9" * 400),
    *(b"[]", b"{}", b'""', b"[" * 3000, b'{"a":' * 1500, b"../../etc/passwd", b"/", b"%00", b"a" * 5000),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u0661".encode(), b"\x00" * 16),
)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutated(seeds: Sequence[bytes], number: int) -> bytes:
    """A seed with one to six changes, which follow from the number."""
    numbers = random.Random(number)
    found = bytearray(seeds[number % len(seeds)])
    for _ in range(numbers.choice((1, 1, 2, 3, 6))):
        _change(found, seeds, numbers)
    return bytes(found)


def _change(found: bytearray, seeds: Sequence[bytes], numbers: random.Random) -> None:
    at = numbers.randint(0, len(found))
    length = min(len(found) - at, numbers.choice((1, 1, 2, 4, 8, 16, 100, 1000)))
    match numbers.randint(0, 9):
        case 0 if at < len(found):
            found[at] ^= 1 << numbers.randint(0, 7)
        case 1 if at < len(found):
            found[at] = numbers.choice(_BYTES)
        case 2:
            found[at:at] = bytes([numbers.choice(_BYTES)])
        case 3:
            del found[at : at + length]
        case 4:
            del found[at:]
        case 5:  # a number in binary
            size = numbers.choice((1, 2, 4, 8))
            value = numbers.choice(_NUMBERS) & ((1 << 8 * size) - 1)
            found[at : at + size] = value.to_bytes(size, numbers.choice(("little", "big")))
        case 6:
            found[at : at + numbers.choice((0, length))] = numbers.choice(_WORDS)
        case 7:  # a part of this or of another input
            other = numbers.choice(seeds)
            start = numbers.randint(0, len(other))
            found[at : at + numbers.choice((0, length))] = other[start : start + numbers.choice((1, 4, 16, 200))]
        case 8 if length:
            found[at:at] = found[at : at + length] * numbers.choice((1, 2, 30))
        case _ if length > 1:
            found[at : at + length] = found[at : at + length][::-1]
