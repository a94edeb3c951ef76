"""How other packages mix sources: ``python others.py ORDER`` in the environment of one of them. Needs nothing of ours.

The order is JSON with ``package``, ``sizes``, ``shares``, ``batch`` and ``folder``. The answer is a line of JSON: for
each full batch of an epoch, how many samples it has of each source; and for each source, how often its samples came.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Sample = tuple[int, int]  # its source, and its number there


def torch_sampler(order: dict[str, Any]) -> Iterator[Sample]:
    """`ConcatDataset` and `WeightedRandomSampler`, with replacement, as its documentation shows."""
    data = import_module("torch.utils.data")
    samples = [(source, number) for source, size in enumerate(order["sizes"]) for number in range(size)]
    weights = [order["shares"][source] / order["sizes"][source] for source, _ in samples]
    yield from (samples[at] for at in data.WeightedRandomSampler(weights, len(samples)))


def mosaicml(order: dict[str, Any]) -> Iterator[Sample]:
    """`StreamingDataset` of several streams with proportions, and batches that are stratified by stream."""
    streaming = import_module("streaming")
    streams = []
    for source, (size, share) in enumerate(zip(order["sizes"], order["shares"], strict=True)):
        place = Path(order["folder"], f"mds{source}")
        with streaming.MDSWriter(out=str(place), columns={"n": "int"}) as writer:
            for number in range(size):
                writer.write({"n": number * len(order["sizes"]) + source})
        streams.append(streaming.Stream(local=str(place), proportion=share))
    batch = order["batch"]
    dataset = streaming.StreamingDataset(
        streams=streams, batch_size=batch, shuffle=True, batching_method="stratified", epoch_size=sum(order["sizes"])
    )
    yield from ((one["n"] % len(streams), one["n"] // len(streams)) for one in dataset)


def litdata(order: dict[str, Any]) -> Iterator[Sample]:
    """`CombinedStreamingDataset` with weights; its epoch ends with the first source that is exhausted."""
    package = import_module("litdata")
    datasets = []
    for source, size in enumerate(order["sizes"]):
        place = str(Path(order["folder"], f"lit{source}"))
        inputs = [number * len(order["sizes"]) + source for number in range(size)]
        package.optimize(fn=same, inputs=inputs, output_dir=place, chunk_bytes="1MB", num_workers=1, verbose=False)
        datasets.append(package.StreamingDataset(place, shuffle=True, drop_last=False))
    combined = package.CombinedStreamingDataset(datasets, weights=order["shares"], iterate_over_all=False)
    yield from ((int(one) % len(datasets), int(one) // len(datasets)) for one in combined)


def same(sample: int) -> int:
    """A sample as LitData stores it."""
    return sample


def answer(samples: Iterable[Sample], order: dict[str, Any]) -> dict[str, Any]:
    """The counts by batch, and how often samples came."""
    taken = list(samples)
    batches = [taken[at : at + order["batch"]] for at in range(0, len(taken) - order["batch"] + 1, order["batch"])]
    times = Counter(taken)
    return {
        "batches": [[Counter(source for source, _ in one)[s] for s in range(len(order["sizes"]))] for one in batches],
        "times": [sorted(times[s, n] for n in range(size)) for s, size in enumerate(order["sizes"])],
    }


PACKAGES = {"torch": torch_sampler, "streaming": mosaicml, "litdata": litdata}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    random.seed(0)
    import_module("torch").manual_seed(0)
    found = answer(PACKAGES[asked["package"]](asked), asked)
    sys.stdout.write(f"{json.dumps(found)}\n")
