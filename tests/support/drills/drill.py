"""A drill: a work, a fault that strikes while it runs, and what came of it."""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from tests.support.drills import faults, works
from tests.support.drills.faults import Fault, NotPossibleError, Process, pause
from tests.support.drills.works import Work
from tests.support.drills.world import World, ended, environment_of

_MOST_SECONDS = 420.0
_OR = ", or "  # between the ways in which a drill ended, in the table
_LONGEST_WAIT = 14.0  # before a fault: later than that, a job on an idle machine has ended
# The clock of an executor's Python jumps by an hour after some calls.
_JUMP = """
import time
_time, _time_ns, _count = time.time, time.time_ns, 0
def _later():
    global _count
    _count += 1
    return 3600 * (_count > 50)
time.time = lambda: _time() + _later()
time.time_ns = lambda: _time_ns() + 10**9 * _later()
"""


@dataclass(frozen=True)
class Drill:
    """A work and its fault."""

    work: Work
    fault: Fault

    @property
    def name(self) -> str:
        return f"{self.work.name}: {self.fault.name}"


@dataclass
class Outcome:
    """What a drill showed. ``wrong`` is what the judge found, or that the work did not end well."""

    drill: Drill
    ended: str = ""
    reason: str = ""  # of the first failure
    wrong: list[str] = field(default_factory=list)
    was_running: bool = True
    not_possible: str = ""  # why this machine or this user cannot have the fault

    @property
    def counts(self) -> bool:
        """Whether it shows something: the fault struck while the work ran, or something is wrong."""
        return bool(self.wrong) or (self.was_running and not self.not_possible)

    def __str__(self) -> str:
        if self.not_possible:
            return f"{self.drill.name}: not run: {self.not_possible}"
        found = f"WRONG: {'; '.join(self.wrong[:5])}" if self.wrong else "nothing lost, doubled or wrong"
        late = "" if self.was_running else " (the fault came after its end)"
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.drill.name}: {self.ended}{why}{late}; {found}"


def run(world: World, drill: Drill, numbers: random.Random) -> Outcome:
    """Run a drill: prepare, disturb, run again after a failure, judge, and mend the servers."""
    outcome, work = Outcome(drill), drill.work
    _mend(world)
    try:
        _prepare(world, work)
        if drill.fault in (faults.CUT, faults.DELAYED, faults.HALF_OPEN):
            world.place = ("127.0.0.1", world.proxy.port)
        if drill.fault is CLOCK:
            _jump(world)
        _disturb(world, drill, numbers, outcome)
    except NotPossibleError as error:
        outcome.not_possible = str(error)
        return outcome
    except AssertionError as error:
        outcome.wrong.append(str(error))
        return outcome
    finally:
        _mend(world)
    try:
        outcome.wrong += work.judge(world)
    except Exception as error:  # what it reads is not there
        outcome.wrong.append(f"the judge cannot read it: {type(error).__name__} {error}")
    return outcome


def _mend(world: World) -> None:
    world.conf.clear()
    world.place = None
    world.proxy.begin("none")
    world.restore()


def _disturb(world: World, drill: Drill, numbers: random.Random, outcome: Outcome) -> None:
    work = drill.work
    end: Callable[[], None] | None = None
    process = cast(Process, None)
    if drill.fault.is_before:
        end = drill.fault.strike(world, numbers, process)
    process = _start(world, work, again=False)

    def strike() -> None:
        pause(numbers.uniform(1.0, 6.0 if not work.is_job else _LONGEST_WAIT), process)
        outcome.was_running = process.poll() is None
        try:
            finish = drill.fault.strike(world, numbers, process)
            if finish is not None:
                pause(drill.fault.seconds, process)
                finish()
        except NotPossibleError as error:
            outcome.not_possible = str(error)
        except Exception as error:  # of a thread, which nobody else would see
            outcome.wrong.append(f"the fault failed: {type(error).__name__} {error}")

    struck = threading.Thread(target=strike)
    if not drill.fault.is_before:
        struck.start()
    code, said = ended(process, seconds=_MOST_SECONDS)
    if not drill.fault.is_before:
        struck.join()
    if end is not None:
        end()
    outcome.ended = "ended well"
    if code == 0:
        return
    assert code is not None, f"it did not end within {_MOST_SECONDS:.0f} s: {said[-500:]}"
    _mend(world)
    if drill.fault is faults.CORRUPTED and work is works.EPOCH:  # what the error advises
        _undisturbed(world, works.REPAIR)
    code, again = ended(_start(world, work, again=True), seconds=_MOST_SECONDS)
    assert code == 0, f"failed again: {again[-1500:]}"
    is_killed = drill.fault in (faults.DRIVER, faults.RANK)
    outcome.reason = "" if is_killed else _reason(said)
    outcome.ended = "killed; ended well when it ran again" if is_killed else "an error; ended well when it ran again"


def _start(world: World, work: Work, *, again: bool) -> Process:
    if work is works.REPAIR:  # compares all replicas, and writes the damaged ones again
        world.conf["spark.cassandra.input.consistency.level"] = "ALL"
    command = work.command(world, again)
    return world.submit(*command) if work.is_job else world.start(command)


def _reason(said: str) -> str:
    """The last line of a failed program, in short."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _prepare(world: World, work: Work) -> None:
    """Run what a work needs, without a fault."""
    if work in (works.INGEST, works.FROM_S3):
        works.fresh(world)
        return
    needed = [works.INGEST] if not _has_tables(world) else []
    if work is works.EPOCH and not works.has_split(world):
        needed.append(works.SPLIT)
    if work is works.FEATURIZE and not world.features:
        needed.append(works.FEATURIZE)
    for one in needed:
        if one is works.INGEST:
            works.fresh(world)
        _undisturbed(world, one)
    if work is works.FEATURIZE:
        with world.server.session() as cql:
            cql.execute(f"TRUNCATE {world.keyspace}.metadata_sharpness_v2", timeout=60)
    if work is works.DELETE:
        works.choose_images(world)


def _undisturbed(world: World, work: Work) -> None:
    code, said = ended(_start(world, work, again=False), seconds=_MOST_SECONDS)
    assert code == 0, f"{work.name} failed without a fault: {said[-1500:]}"
    wrong = work.judge(world)
    assert not wrong, f"{work.name} is wrong without a fault: {wrong[:3]}"


def _has_tables(world: World) -> bool:
    found = world.rows(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{world.keyspace}'")
    return ("metadata",) in found and not works.wrong_tables(world)


def _jump(world: World) -> None:
    folder = world.folder / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_JUMP)
    world.conf |= environment_of({"PYTHONPATH": str(folder)})


CLOCK = Fault("a clock that jumps by an hour in executors", lambda *_: None, is_before=True)
DRILLS: Sequence[Drill] = [
    *(
        Drill(works.INGEST, fault)
        for fault in (
            faults.NODE, faults.ALL_NODES, faults.HANG, faults.ROLLING, faults.FULL_NODE, faults.EXECUTOR,
            faults.WORKER, faults.DRIVER, CLOCK,
        )
    ),
    Drill(works.FROM_S3, faults.S3),
    *(Drill(works.SPLIT, fault) for fault in (faults.NODE, faults.EXECUTOR, faults.DRIVER, faults.FULL_OUTPUT)),
    *(Drill(works.SHARD, fault) for fault in (faults.NODE, faults.EXECUTOR, faults.DRIVER, faults.S3)),
    *(Drill(works.FEATURIZE, fault) for fault in (faults.ALL_NODES, faults.WORKER, faults.DRIVER)),
    *(Drill(works.VERIFY, fault) for fault in (faults.NODE, faults.EXECUTOR, faults.ROLLING)),
    *(Drill(works.EPOCH, fault) for fault in (faults.NODE, faults.ALL_NODES, faults.HANG, faults.ROLLING,
                                               faults.RANK, faults.CUT, faults.DELAYED, faults.HALF_OPEN)),
    Drill(works.EPOCH, faults.CORRUPTED),
    Drill(works.REPAIR, faults.CORRUPTED),
    *(Drill(works.DELETE, fault) for fault in (faults.NODE, faults.EXECUTOR, faults.DRIVER)),
]  # fmt: skip


@dataclass
class Counted:
    """The columns of a table of drills, by the drill's name."""

    times: Counter[str] = field(default_factory=Counter)
    ways: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    wrong: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, text: str) -> "Counted":
        """Read a table in Markdown, or an empty text."""
        found = cls()
        for line in text.splitlines()[2:]:
            work, fault, count, ended, faulty = (cell.strip() for cell in line.strip("|").split("|"))
            name = f"{work}: {fault}"
            found.times[name] = int(count)
            found.ways[name] = ended.split(_OR)
            found.wrong[name] = 0 if faulty == "nothing" else int(faulty)
        return found


def table(outcomes: Sequence[Outcome], earlier: str = "") -> str:
    """The outcomes as a table in Markdown, added to those of an earlier table."""
    counted = Counted.of(earlier)
    for one in (outcome for outcome in outcomes if outcome.counts):
        counted.times[one.drill.name] += 1
        counted.ways[one.drill.name] += [one.ended] if one.ended else []
        counted.wrong[one.drill.name] += bool(one.wrong)
    lines = [
        f"| {name.replace(': ', ' | ', 1)} | {count} | {_OR.join(dict.fromkeys(counted.ways[name]))} "
        f"| {counted.wrong[name] or 'nothing'} |"
        for name, count in counted.times.items()
    ]
    heads = ("what runs", "what happens", "times", "how it ended", "lost, doubled or wrong")
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines, ""])
