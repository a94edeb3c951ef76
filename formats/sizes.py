"""Sizes as people write them, ``500M``, ``1GiB``, ``3e8``, and counts as they read them: ``1 class``."""

import re
from decimal import Decimal

# What a help page says about an option whose metavar is SIZE.
HELP = (
    "SIZE is a number of bytes or has a unit: K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti of 1024 (500M, 1GiB, 3e8)"
)

_SIZE = re.compile(
    r"(?P<number>\d{1,30}(\.\d{1,30})?|\.\d{1,30})(e\+?(?P<power>\d{1,2}))? ?(?P<unit>[kmgtp]i?)?b?", re.ASCII
)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MOST = 2**63 - 1


def parse_size(text: str) -> int:
    """Read a number of bytes, at least 1: a number, which may have a fraction or an exponent, and a unit: ``K``, ``M``,
    ``G``, ``T`` and ``P`` are powers of 1000, ``Ki``, ``Mi``, ``Gi``, ``Ti`` and ``Pi`` are powers of 1024. A ``B`` may
    follow, and case does not matter: ``1.5G``, ``3e8``. Raises ValueError.
    """
    wanted = "Wanted a size in bytes or with a unit, such as 500M, 1GiB or 3e8."
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{wanted} Found: {text!r}")
    unit = found["unit"] or ""
    base = 1024 if unit.endswith("i") else 1000
    exact = Decimal(found["number"]).scaleb(int(found["power"] or 0)) * base ** _POWERS[unit.removesuffix("i")]
    if exact != exact.to_integral_value():
        raise ValueError(f"{wanted} Found: {text!r}, which is not a whole number of bytes")
    if not 1 <= exact <= _MOST:
        raise ValueError(f"{wanted} Found: {text!r}, which is less than 1 byte or more than {_MOST:,}")
    return int(exact)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number and what it counts, such as "1 image" or "2,000 images"."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
