"""Which damage of JPEGs each check finds, and what the full check costs beside a decoder that hides its warnings.

    python -m benchmarks.ingest.damage

prints the table of docs/how-to/ingest.md: generated JPEGs of eight kinds and four qualities, damaged at random places
of their coded pixels. Damage that changes no pixel does not count.
"""

import io
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from etl.pictures.images import RejectedError, read_header
from etl.pictures.plan import Check

Damage = Callable[[bytes, random.Random], bytes]

KINDS: dict[str, dict[str, Any]] = {
    **{"4:2:0": {}, "4:4:4": {"subsampling": 0}, "gray": {"mode": "L"}, "CMYK": {"mode": "CMYK"}},
    **{"optimized": {"optimize": True}, "restart marks": {"restart_marker_rows": 1}},
    **{"many restart marks": {"restart_marker_blocks": 7}, "progressive": {"progressive": True}},
}
QUALITIES = (50, 75, 90, 95)
CHECKS: tuple[Check, ...] = ("header", "full")
_HEADER = 14  # bytes of the last header before coded pixels


def pictures(per_kind: int, *, width: int = 240, height: int = 180) -> Iterator[tuple[str, bytes]]:
    """JPEGs of each kind and quality, with the name of the kind: soft areas with noise, as in photos."""
    numbers = np.random.default_rng(1)
    for kind, options in KINDS.items():
        for quality in QUALITIES:
            for _ in range(per_kind):
                coarse = numbers.integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
                soft = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
                noisy = np.clip(soft + numbers.normal(0, 8, soft.shape), 0, 255).astype(np.uint8)
                file = io.BytesIO()
                rest = {name: value for name, value in options.items() if name != "mode"}
                Image.fromarray(noisy).convert(options.get("mode", "RGB")).save(file, "JPEG", quality=quality, **rest)
                yield kind, file.getvalue()


def _replaced(size: int, by: Callable[[random.Random, int], bytes]) -> Damage:
    def damage(data: bytes, chance: random.Random) -> bytes:
        at = chance.randrange(data.index(b"\xff\xda") + _HEADER, len(data) - 2 - size)
        return data[:at] + by(chance, size) + data[at + size :]

    return damage


def _zeros(_: random.Random, size: int) -> bytes:
    return bytes(size)


def _nothing(_: random.Random, size: int) -> bytes:
    return b""


def _bit(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(data.index(b"\xff\xda") + _HEADER, len(data) - 2)
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "cut anywhere": lambda data, chance: data[: chance.randrange(700, len(data) - 2)],
    "without its last two bytes": lambda data, _: data[:-2],
    "second half zeros": lambda data, _: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "second half zeros, then an end mark": lambda data, _: (
        data[: len(data) // 2] + bytes(len(data) - len(data) // 2 - 2) + data[-2:]
    ),
    "second half missing, then an end mark": lambda data, _: data[: len(data) // 2] + data[-2:],
    "followed by another JPEG": lambda data, _: data + data,
    **{f"{size:,} zeros": _replaced(size, _zeros) for size in (4096, 512, 64, 16)},
    **{f"{size:,} random bytes": _replaced(size, random.Random.randbytes) for size in (512, 64, 8)},
    "512 bytes missing": _replaced(512, _nothing),
    "1 byte missing": _replaced(1, _nothing),
    "1 bit changed": _bit,
}


def _is_found(data: bytes, check: Check) -> bool:
    try:
        read_header(data, check=check)
    except RejectedError:
        return True
    return False


def _pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        return image.tobytes()


def shares_found(per_kind: int) -> dict[str, dict[tuple[Check, bool], float]]:
    """The share of damaged files that each check finds, by damage; by check and whether they are progressive."""
    chance, shares = random.Random(3), {}
    whole = [(kind, data, _pixels(data)) for kind, data in pictures(per_kind) if not _is_found(data, "full")]
    for name, damage in DAMAGES.items():
        found, all_of = Counter[tuple[Check, bool]](), Counter[tuple[Check, bool]]()
        for kind, data, pixels in whole:
            broken = damage(data, chance)
            verdicts = [(check, _is_found(broken, check)) for check in CHECKS]
            if not any(verdict for _, verdict in verdicts) and _pixels(broken) == pixels:
                continue
            for check, verdict in verdicts:
                all_of[check, kind == "progressive"] += 1
                found[check, kind == "progressive"] += verdict
        shares[name] = {key: found[key] / number for key, number in all_of.items()}
    return shares


def seconds_of_checks(count: int, *, rounds: int) -> dict[str, list[float]]:
    """Seconds a picture of both checks and of Pillow's decoder at the same scale, in turn, for JPEGs of 500 x 375."""
    files = [data for _, data in pictures(max(1, count // len(KINDS) // len(QUALITIES)), width=500, height=375)]

    def pillow(data: bytes) -> object:
        with Image.open(io.BytesIO(data)) as image:
            image.draft(None, (1, 1))
            return image.load()

    work: dict[str, Callable[[bytes], object]] = {"pillow": pillow}
    work |= {check: partial(read_header, check=check) for check in CHECKS}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, one in work.items():
            started = time.perf_counter()
            for data in files:
                one(data)
            seconds[name].append((time.perf_counter() - started) / len(files))
    return seconds


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


if __name__ == "__main__":
    print("| damage | `header` | `full` | `full`, progressive |\n|---|---|---|---|")
    for name, shares in shares_found(10).items():
        told = (shares["header", False], shares["full", False], shares["full", True])
        print(f"| {name} | {' | '.join(map(_percent, told))} |")
