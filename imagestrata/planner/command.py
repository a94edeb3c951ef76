"""Say how fast a training will read, what will limit it, and what to change, before it runs.

  imagestrata plan --rtt 150ms --bandwidth 10Gbit --image 110kB --decode 2.5ms --gpus 8 --step 180ms
  imagestrata plan --measure db1,db2 --split splits/imagenette --gpus 8 --step 180ms --decode 2.5ms

The loader's own code reads an epoch on virtual time, over a network and a cluster with these numbers. --measure reads
images of a split from a real cluster for 10 seconds, with a process for each GPU, and takes round trip, rate and size
from that; options that you give count instead. All ranks share what --bandwidth and --cluster say. Without --step, the
plan is for a training that takes images as fast as they come. TCP's slow start, lost packets and late answers are not
simulated.

TIME is a number with a unit: s, ms or us (180ms). A bandwidth has bits or bytes a second (10Gbit, 1.25GB).

exit codes: 0 done, also if GPUs will wait; 1 failed; 2 bad arguments
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.progress import Progress

import loader
from formats.command_line import Parser, command, number, port, size, whole_number
from formats.sizes import counted, parse_size
from imagestrata.planner.measuring import Measured, measure
from imagestrata.planner.simulation import CLIENT_SECONDS, TIMEOUT, Outcome, Plan, simulate
from loader.cassandra.cluster import Cluster

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(s|ms|us)", re.ASCII)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_BITS = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?([kmgt]?)(?:bit(?:/s)?|bps)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SMALLEST_WINDOW = 10_000  # bytes; TCP begins with more
_WAITS = 0.01  # a GPU that waits less is as fast as it can be
_GAIN = 1.01  # changes that give less are not worth their memory
_SPARE = 1.05  # a limit that is not this much above what GPUs take is named
_WINDOWS = 2.0  # reads in flight, in round trips: `loader.prefetch.window` keeps as many


def parser() -> Parser:
    """The options of `imagestrata plan`."""
    made = Parser("imagestrata plan", manual=__doc__)
    add = made.add_argument
    add("--rtt", type=_trip, metavar="TIME", help="the round trip to the cluster")
    add("--image", type=size, metavar="SIZE", help="the mean size of an encoded image")
    add("--bandwidth", type=_bandwidth, metavar="N", help="of the network that all GPUs share, a second (10Gbit)")
    add("--cluster", type=_above_0, metavar="N", help="images a second that the cluster sends (default: no limit)")
    add("--gpus", type=_at_least_1, default=1, metavar="N", help="GPUs, each with a rank (default: %(default)s)")
    add("--batch", type=_at_least_1, default=256, metavar="N", help="images of a batch of a GPU (default: %(default)s)")
    add("--step", type=_seconds, default=0.0, metavar="TIME", help="time of a GPU for a batch")
    add("--decode", type=_seconds, default=0.0, metavar="TIME", help="CPU time to decode, crop and normalize an image")
    add("--threads", type=_at_least_1, default=4, metavar="N", help="decoding threads of a rank (default: %(default)s)")
    add("--memory-budget", type=size, default=256_000_000, metavar="SIZE",
        help="bytes that a rank reads ahead (default: 256M)")  # fmt: skip
    add("--connections", type=_at_least_1, metavar="N", help="connections of a rank (default: as the loader chooses)")
    add("--window", type=_window, default=2_000_000, metavar="SIZE",
        help="bytes that a connection carries in a round trip (default: 2M)")  # fmt: skip
    add("--max-in-flight", type=_at_least_1, default=4096, metavar="N",
        help="reads in flight of a rank (default: %(default)s)")  # fmt: skip
    add("--measure", metavar="HOST,...", help="measure this cluster")
    add("--split", metavar="SPLIT", help="with --measure: the split folder or split dictionary to read")
    add("--index", type=whole_number, default=0, metavar="N", help="which of its splits (default: %(default)s)")
    add("--port", type=port, metavar="N", help="with --measure: the port of Cassandra")
    add("--seconds", type=_above_0, default=10.0, metavar="N", help="how long to measure (default: %(default)s)")
    add("--json", action="store_true", help="print JSON")
    return made


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser()
    args = made.parse_args(argv)
    if (args.measure is None) != (args.split is None):
        found = "only --split" if args.measure is None else "only --measure"
        made.error(f"wanted --measure HOST with --split SPLIT, whose images are read. Found: {found}")
    if missing := [name for name in ("rtt", "image") if getattr(args, name) is None and args.measure is None]:
        made.error(f"wanted --{' and --'.join(missing)}, or --measure HOST --split SPLIT. Found: none")
    measured = _measured(args)
    plan = _plan(args, measured)
    outcome = _simulated(plan, "as planned")
    better = improved(plan)
    after = None if better == plan or not _waits(plan, outcome) else _simulated(better, "with changes")
    if after is not None and after.rate < _GAIN * outcome.rate:
        better, after = plan, None
    if args.json:
        _write(json.dumps(_as_json(plan, outcome, measured, better, after)))
        return 0
    for line in report(plan, outcome, measured):
        _write(line)
    for line in advice(plan, outcome, better, after):
        _write(line)
    return 0


def _measured(args: argparse.Namespace) -> Measured | None:
    if args.measure is None:
        return None
    split = loader.open_split(args.split, index=args.index)
    cluster = Cluster(hosts=args.measure.split(","), port=args.port, connections=args.connections)
    _tell(f"measuring {cluster.place} with {counted(args.gpus, 'process', 'processes')} for {args.seconds:g} s")
    return measure(split, cluster, ranks=args.gpus, seconds=args.seconds)


def _plan(args: argparse.Namespace, measured: Measured | None) -> Plan:
    """What is simulated: what the options say, or else what was measured."""
    usual: dict[str, Any] = {"cluster": math.inf, "bandwidth": math.inf, "client": CLIENT_SECONDS}
    if measured is not None:
        usual = {"rtt": measured.round_trip, "image": measured.image_bytes, "cluster": measured.rate}
        usual |= {"bandwidth": math.inf, "client": measured.client}
        if args.image is not None:  # images of another size: what was measured may be the network
            usual["bandwidth"] = measured.rate * measured.image_bytes
    given = {name: getattr(args, name) for name in ("rtt", "image", "cluster", "bandwidth")}
    found = usual | {name: value for name, value in given.items() if value is not None}
    return Plan(
        round_trip=found["rtt"], image_bytes=found["image"], cluster=found["cluster"], bandwidth=found["bandwidth"],
        client=found["client"], gpus=args.gpus, batch_size=args.batch,
        step=args.step, decode=args.decode, threads=args.threads, memory_budget=args.memory_budget,
        connections=args.connections, connection_bytes=args.window, max_in_flight=args.max_in_flight,
    )  # fmt: skip


def _simulated(plan: Plan, name: str) -> Outcome:
    with Progress(transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task(f"simulating, {name}")
        found = simulate(plan, progress=lambda done, total: shown.update(task, completed=done, total=total))
    # Counted in whole batches, a rate can be a little more than what a part of the way carries.
    return replace(found, rate=min(found.rate, *limits(plan).values()))


def limits(plan: Plan) -> dict[str, float]:
    """The most images a second that each part of the way carries for all ranks, if nothing else limits it."""
    size, trip = plan.image_bytes, plan.round_trip
    found = {
        "GPUs": plan.demand,
        "decoding": plan.gpus * plan.threads / plan.decode if plan.decode else math.inf,
        "reading": plan.gpus / plan.client,
        "memory": plan.gpus * max(plan.memory_budget / size, plan.batch_size) / trip if trip else math.inf,
        "reads in flight": plan.gpus * plan.max_in_flight / trip if trip else math.inf,
        "connections": plan.gpus * plan.opened * plan.connection_bytes / trip / size if trip else math.inf,
        "network": plan.bandwidth / size,
        "cluster": plan.cluster,
    }
    return {name: value for name, value in found.items() if value < math.inf}


def improved(plan: Plan) -> Plan:
    """The plan with options that no longer limit what the GPUs take, or what the rest of the way carries."""
    found = limits(plan)
    fixed = [found[name] for name in ("GPUs", "reading", "network", "cluster") if name in found]
    goal = min(fixed) / plan.gpus  # of a rank
    on_way = goal * plan.round_trip * plan.image_bytes
    threads = math.ceil(goal * plan.decode * _SPARE)
    # Beside what is on its way, two batches wait for the decoder.
    budget = _WINDOWS * on_way + 2 * plan.batch_size * plan.image_bytes
    links = math.ceil(_SPARE * on_way / plan.connection_bytes)
    return replace(
        plan,
        threads=max(plan.threads, threads),
        memory_budget=max(plan.memory_budget, math.ceil(budget / 1e6) * 1_000_000),
        connections=plan.connections if links <= plan.opened else links,
        max_in_flight=max(plan.max_in_flight, math.ceil(_WINDOWS * goal * plan.round_trip)),
    )


def report(plan: Plan, outcome: Outcome, measured: Measured | None) -> Iterator[str]:
    """What a plan leads to, line by line."""
    where = (
        "" if measured is None else f"; measured: {1000 * measured.round_trip:.3g} ms, {shown(measured.rate)} images/s"
    )
    by = "" if measured is None else f" by {counted(plan.gpus, 'process', 'processes')}"
    trip, image = shown(1000 * plan.round_trip), shown(plan.image_bytes / 1000)
    yield f"a round trip of {trip} ms, images of {image} kB{where}{by}"
    is_fed = plan.step > 0
    taken = f" of {shown(plan.demand)} that the GPUs take" if is_fed else ""
    yield _line("images/s", f"{shown(outcome.rate)}{taken}")
    if is_fed:
        yield _line("GPUs wait", f"{outcome.waiting:.1%} of the time" if outcome.waiting else "never")
    yield _line("first batch", f"{outcome.first_batch:.2f} s after connecting")
    yield _line("reads in flight", f"{outcome.in_flight:,} of a rank")
    yield _line("connections", f"{plan.opened:,} of a rank, {plan.gpus * plan.opened:,} in all")
    budget = plan.memory_budget
    given = f"{shown(budget / 1e6)} MB" if budget >= 1_000_000 else counted(budget, "byte")
    yield _line("memory", f"{shown(outcome.memory / 1e6)} MB of a rank, with a memory_budget of {given}")
    if not plan.decode:
        yield _line("decoding", "not given (--decode), so it takes no time here")
    yield "the most images/s of each part, if nothing else limits it:"
    for name, most in sorted(limits(plan).items(), key=lambda one: one[1]):
        yield f"  {name:<15} {shown(most):>10}"


def advice(plan: Plan, outcome: Outcome, better: Plan, after: Outcome | None) -> Iterator[str]:
    """What to change, line by line."""
    if not _waits(plan, outcome):
        waits = f"the GPUs wait less than {_WAITS:.0%} of the time" if outcome.waiting else "the GPUs do not wait"
        yield f"Nothing to change: {waits if plan.step else 'no option of the loader limits it'}."
        return
    found = limits(plan)
    goal = plan.demand if plan.step else outcome.rate
    for name, text in _fixed(plan).items():
        if found.get(name, math.inf) < goal * (_SPARE if plan.step else 1.0):
            yield f"{name}: {text}"
    changes = _changes(plan, better)
    if after is not None:
        waits = f", and the GPUs wait {after.waiting:.1%} of the time" if plan.step else ""
        yield f"With {', '.join(changes)}: {shown(after.rate)} images/s{waits}."


def _waits(plan: Plan, outcome: Outcome) -> bool:
    """Whether GPUs wait, or without a step, whether options hold the rate back."""
    return outcome.waiting > _WAITS if plan.step else improved(plan) != plan


def _changes(plan: Plan, better: Plan) -> list[str]:
    """The options that differ, as one gives them to a source or to a DALI iterator."""
    same = ("memory_budget", "connections", "max_in_flight")
    names = {"threads": "num_threads", **dict(zip(same, same, strict=True))}
    return [
        f"{name}={getattr(better, one):_}" for one, name in names.items() if getattr(better, one) != getattr(plan, one)
    ]


def _fixed(plan: Plan) -> dict[str, str]:
    """What helps against limits that no option of the loader changes."""
    largest = plan.bandwidth / plan.demand if plan.step else 0.0
    below = f" below {largest / 1000:,.0f} kB" if 1000 <= largest < plan.image_bytes else ""
    return {
        "network": f"smaller images{below} (ingest.py --img-size), or a cluster that is nearer",
        "cluster": "more nodes, or shards on S3, which need fewer requests",
        "reading": "a rank reads with one core, which carries no more",
    }


def _as_json(
    plan: Plan, outcome: Outcome, measured: Measured | None, better: Plan, after: Outcome | None
) -> dict[str, Any]:
    found = {name: value for name, value in asdict(plan).items() if value != math.inf}
    return {
        "plan": {**found, "connections": plan.opened},
        "measured": None if measured is None else asdict(measured),
        "outcome": asdict(outcome),
        "limits": limits(plan),
        "changes": {name: value for name, value in asdict(better).items() if value != getattr(plan, name)},
        "changed": None if after is None else asdict(after),
    }


def shown(value: float) -> str:
    """A number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(name: str, text: str) -> str:
    return f"{name:<17} {text}"


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _seconds(text: str) -> float:
    if text.strip() == "0":
        return 0.0
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"wanted a time with a unit, such as 150ms or 0.2s. Found: {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def _trip(text: str) -> float:
    if (found := _seconds(text)) >= TIMEOUT:
        raise argparse.ArgumentTypeError(f"wanted a round trip below {TIMEOUT:.0f} s. Found: {text!r}")
    return found


def _window(text: str) -> int:
    if (found := size(text)) < _SMALLEST_WINDOW:
        raise argparse.ArgumentTypeError(f"wanted at least {_SMALLEST_WINDOW:,} bytes. Found: {text!r}")
    return found


def _bandwidth(text: str) -> float:
    """Bytes a second."""
    found = _BITS.fullmatch(text.strip())
    if found is not None and float(found[1]) > 0:
        return float(found[1]) * 1000.0 ** _POWERS[found[2].lower()] / 8
    try:
        return float(parse_size(text.strip().removesuffix("/s")))
    except ValueError:
        wanted = "wanted bits or bytes a second, such as 10Gbit or 1.25GB"
        raise argparse.ArgumentTypeError(f"{wanted}. Found: {text!r}") from None


def _above_0(text: str) -> float:
    if not 0 < (found := number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number above 0. Found: {text!r}")
    return found


def _at_least_1(text: str) -> int:
    if (found := whole_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"wanted a whole number of at least 1. Found: {text!r}")
    return found
