"""How exactly sources are mixed: ours, and other packages in separate environments."""

import json
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import loader
from benchmarks.harness.packages import LITDATA, MOSAICML
from benchmarks.harness.results import Row, tell
from benchmarks.order import others
from benchmarks.order.figures import FIGURES

_SIZES, _SHARES, _BATCH = (9000, 900, 99), (0.7, 0.2, 0.1), 128
_SECONDS = 600
ROWS = {16: "ours", 17: "streaming", 18: "litdata", 19: "torch"}


def row_of(numbers: Collection[int], folder: Path) -> dict[int, Row]:
    """Mix three sources of other sizes in given shares, for an epoch."""
    (number,) = numbers
    name = ROWS[number]
    tell(f"mix {len(_SIZES)} sources by {name}")
    order = {"package": name, "sizes": _SIZES, "shares": _SHARES, "batch": _BATCH, "folder": str(folder / name)}
    found = _ours(folder / name) if name == "ours" else _theirs(order)
    worst = max(
        abs(count - share * _BATCH) for batch in found["batches"] for count, share in zip(batch, _SHARES, strict=True)
    )
    times = "; ".join(f"{one[0]} to {one[-1]}" for one in found["times"])
    note = f"{len(found['batches'])} batches of {_BATCH}; images of the three sources came {times} times"
    return {number: FIGURES.value_row(number, worst, note=note)}


def _ours(folder: Path) -> dict[str, Any]:
    parts = {}
    for name, size in zip("abc", _SIZES, strict=True):
        place = folder / name / "class"
        place.mkdir(parents=True)
        for number in range(size):
            (place / f"{number}.png").write_bytes(b"x")
        parts[name] = loader.open_folder(folder / name)
    mixture = loader.mix_splits(parts)
    shares = dict(zip(parts, _SHARES, strict=True))
    samples: list[others.Sample] = []
    with loader.MixedSource(mixture, shares=shares, batch_size=_BATCH, rank=0, world_size=1) as source:
        for batch in source.epoch(0):
            numbers = mixture.part_numbers(batch.positions)
            samples += zip(numbers.tolist(), (batch.positions - mixture.starts[numbers]).tolist(), strict=True)
    return others.answer(samples, {"sizes": _SIZES, "batch": _BATCH})


def _theirs(order: dict[str, Any]) -> dict[str, Any]:
    package = {"streaming": MOSAICML, "litdata": LITDATA, "torch": MOSAICML}[order["package"]]
    package.install()
    Path(order["folder"]).mkdir(parents=True)
    command = [str(package.python), others.__file__, json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        told = " ".join(done.stderr.split())[-300:]
        raise RuntimeError(f"Wanted an epoch of {order['package']}. Found: exit code {done.returncode}: {told}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
