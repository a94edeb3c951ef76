"""Plays histories and checks what must hold after every step of every job.

A history is a list of operations: a change of a source, a job alone or two jobs at once, which end or are killed before
one of their writes.
"""

import hashlib
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from etl.tables.runs import expired, expiring, overlapping, recorded_runs, unfinished
from formats.checksums import checksum
from tests.support.histories.jobs import (
    CLASSES,
    OvertakenError,
    RefusedError,
    World,
    delete,
    featurize,
    id_of,
    ingest,
    relabel,
    repair,
    rewrite,
)
from tests.support.histories.reading import GONE, Known, Reading, Split, state_of

PATHS = ("p", "q", "r")


class Put(NamedTuple):
    """A file appears in a source, or changes."""

    source: str
    path: str
    content: str
    name: str  # of its class


class Drop(NamedTuple):
    """A file is removed from a source."""

    source: str
    path: str


class Train(NamedTuple):
    """A model is trained of a split made now, with the newest version of the labels or with those of the table."""

    has_view: bool


class Wait(NamedTuple):
    """Time passes, while no job runs."""

    seconds: int


class Ingest(NamedTuple):
    """`jobs.ingest`; ``continues`` is the place of an earlier ingest in the history whose id it has."""

    source: str
    flags: tuple[str, ...] = ()
    retried: int = 0
    continues: int | None = None
    ttl: int | None = None  # seconds; 0 for `none`


class Delete(NamedTuple):
    """`jobs.delete`."""

    paths: tuple[str, ...]


class Featurize(NamedTuple):
    """`jobs.featurize`, with the index of vectors or without it."""

    has_index: bool = False


class Repair(NamedTuple):
    """`jobs.repair`, or `jobs.rewrite` with a source."""

    source: str | None = None


class Relabel(NamedTuple):
    """`jobs.relabel`; ``labels`` are paths with classes."""

    labels: tuple[tuple[str, str], ...]


Job = Ingest | Delete | Featurize | Repair | Relabel


class Alone(NamedTuple):
    """A job, killed before its write ``kill``."""

    job: Job
    kill: int | None = None


class Together(NamedTuple):
    """Two jobs. ``turns`` says which one takes each of the first steps; after that they alternate."""

    first: Alone
    second: Alone
    turns: tuple[int, ...]


Operation = Put | Drop | Train | Wait | Alone | Together


class BrokenError(AssertionError):
    """Something that must hold does not."""


@dataclass
class _Running:
    """A job that was started."""

    coroutine: Coroutine[Any, Any, None]
    kill: int | None
    steps: int = 0
    outcome: str | None = None  # finished, refused, overtaken, killed
    sequence: int | None = None  # of its run
    # the states that each image had at some time after its end; None for no image
    passed: dict[uuid.UUID, set["Known | None"]] = field(default_factory=dict)

    def step(self) -> None:
        """Run up to the next write."""
        if self.kill is not None and self.steps >= self.kill:
            self.coroutine.close()
            self.outcome = "killed"
            return
        self.steps += 1
        try:
            self.coroutine.send(None)
        except StopIteration:
            self.outcome = "finished"
        except OvertakenError:
            self.outcome = "overtaken"
        except RefusedError:
            self.outcome = "refused"


@dataclass
class Machine:
    """A world, with what was seen of it after each run."""

    world: World
    # by run, the images after it, and those that were uncertain then
    seen: dict[int, tuple[Mapping[uuid.UUID, Known], frozenset[uuid.UUID]]] = field(default_factory=dict)
    # by a run that ended before one that ran at the same time: the states that images had from its end to that of both
    passed: dict[int, dict[uuid.UUID, set[Known | None]]] = field(default_factory=dict)
    # splits that models were trained of, with the images then
    trained: list[tuple[Split, Mapping[uuid.UUID, Known]]] = field(default_factory=list)

    def play(self, history: Sequence[Operation]) -> None:
        """Play a history. Raises `BrokenError`."""
        for operation in history:
            match operation:
                case Put(source, path, content, name):
                    self.world.sources[source][path] = (content.encode(), name)
                case Drop(source, path):
                    self.world.sources[source].pop(path, None)
                case Train(has_view):
                    self._train(has_view=has_view)
                case Wait(seconds):
                    self.world.wait(seconds)
                    self._check_rest()
                    self._check_seen()
                case Alone():
                    self._run([operation], ())
                case Together(first, second, turns):
                    self._run([first, second], turns)

    def _run(self, jobs: Sequence[Alone], turns: Sequence[int]) -> None:
        before, no_bytes, groups = self._newest(), self._without_bytes(), self._groups()
        running = [_Running(self._start(one.job), one.kill) for one in jobs]
        for turn in [*turns, *([0, 1] * 500 if len(jobs) > 1 else [0] * 500)]:
            one = running[turn] if running[turn].outcome is None else running[-1 - turn if len(jobs) > 1 else 0]
            if one.outcome is None:
                newest = self._newest()
                one.step()
                if self._newest() > newest:
                    one.sequence = newest + 1
                self._check_step()
                self._note_states(running)
        assert all(one.outcome for one in running), "a job does not end"
        self._note_uncertain(jobs, running)
        kinds = {type(one.job) for one in jobs}
        self.world.has_raced |= kinds == {Ingest, Featurize}
        self._check_rest()
        if all(one.outcome != "killed" for one in running) and (lost := self._without_bytes() - no_bytes):
            raise BrokenError(f"the bytes of {lost} are lost")
        if len(jobs) == 1 and running[0].outcome == "overtaken":
            raise BrokenError(f"{jobs[0]} says that another job has done the same, but was alone")
        if len(jobs) == 1 and running[0].outcome == "finished":
            self._check_finished(jobs[0].job)
            self._check_groups(jobs[0].job, before=groups)
        newest = self._newest()
        if newest > before:
            self.seen[newest] = self._visible(), frozenset(self.world.uncertain | self._without_bytes())
        for one in running:
            if one.sequence is not None and one.sequence < newest:
                certain = one.passed.keys() - self.world.uncertain
                self.passed[one.sequence] = {image: one.passed[image] for image in certain}
        self._check_seen()

    def _train(self, *, has_view: bool) -> None:
        reading, runs = self.world.read(), recorded_runs(self.world.control, self.world.tables.metadata)
        if not runs:
            return
        version = reading.views[0].version if has_view and reading.views else 0
        there = {image: state for image, state in self._visible().items() if image not in self.world.uncertain}
        there = {image: state for image, state in there.items() if image in reading.visible()}
        labels = {image: reading.corrected(image) if version else label for image, (_, label) in there.items()}
        split = Split(runs[0].sequence, frozenset(one.sequence for one in unfinished(runs)), version, labels)
        self.trained.append((split, there))

    def _check_changes(self, reading: Reading) -> None:
        """The lineage of a model says which of its images were deleted, replaced or labelled otherwise since."""
        there = self._visible()
        for split, then in self.trained:
            found = reading.changes(split)
            for image, (digest, _) in then.items():
                if image in self.world.uncertain:
                    continue
                state, told = there.get(image), found[image]
                if (state is None) != ("images deleted" in told):
                    raise BrokenError(f"of {split}, {image} is {state}. Found: {told}")
                if state is None:
                    continue
                # whether a run that had not finished wrote an image before or after the split is not known
                is_unsure = image in self.world.expired or reading.rows[image]["since"] in split.unfinished
                if (state[0] != digest) != ("bytes replaced" in told) and not (is_unsure and state[0] == digest):
                    raise BrokenError(f"of {split}, {image} has the bytes {state[0]!r}, then {digest!r}. Found: {told}")
                if self.world.last_deletions.get(image) is not None:  # its labels are gone
                    continue
                if self._is_relabelled(image, state, split) != ("labels corrected" in told):
                    raise BrokenError(f"of {split}, the label of {image} is that of {state}. Found: {told}")

    def _is_relabelled(self, image: uuid.UUID, state: Known, split: Split) -> bool:
        """Whether an image has another label now than in a split, by what the runs have said."""
        views = self.world.read().views
        said = [
            (view.version, view.sequence or 0, self.world.versions[view.sequence or 0].get(image)) for view in views
        ]
        counts = [(version, run, one[0]) for version, run, one in said if one is not None and one[1:] == state]
        own = next((label for version, _, label in counts if version <= split.version), state[1])
        later = [label for version, run, label in counts if version > split.version and run > split.sequence]
        was = split.labels[image]
        return own != was or (bool(later) and later[0] != was)

    def _groups(self) -> dict[uuid.UUID, str]:
        return {image: row["group_id"] for image, row in self.world.rows.items() if row["group_id"] is not None}

    def _check_groups(self, job: Job, *, before: Mapping[uuid.UUID, str]) -> None:
        now, rows = self._groups(), self.world.rows
        lost = (before.keys() & rows.keys()) - now.keys()
        if lost and isinstance(job, Ingest) and "groups" not in job.flags:
            raise BrokenError(f"the groups of {lost} are lost")

    def _without_bytes(self) -> set[uuid.UUID]:
        """The images without bytes. In two keyspaces, a run that removes images and is killed leaves some."""
        return {image for image in self.world.rows if self.world.data.get(image) is None}

    def _note_states(self, running: Sequence[_Running]) -> None:
        now = {image: state_of(row) for image, row in self.world.rows.items() if image not in self.world.deleted}
        for one in running:
            if one.outcome is not None and len(running) > 1:
                for image in map(id_of, PATHS):
                    one.passed.setdefault(image, set()).add(now.get(image))

    def _note_uncertain(self, jobs: Sequence[Alone], running: Sequence[_Running]) -> None:
        for one, result in zip(jobs, running, strict=True):
            if not isinstance(one.job, Delete):
                continue
            images = {id_of(path) for path in one.job.paths}
            if result.outcome == "finished":
                self.world.uncertain -= images
            elif len(jobs) > 1:
                self.world.uncertain |= images

    def _start(self, job: Job) -> Coroutine[Any, Any, None]:
        match job:
            case Delete(paths):
                return delete(self.world, [id_of(path) for path in paths])
            case Featurize(has_index):
                return featurize(self.world, has_index=has_index)
            case Relabel(labels):
                return relabel(self.world, dict(labels))
            case Repair(source):
                return repair(self.world) if source is None else rewrite(self.world, source)
        assert isinstance(job, Ingest)
        known = [run for run in recorded_runs(self.world.control, self.world.tables.metadata) if run.kind == "ingest"]
        again = None if job.continues is None or not known else known[job.continues % len(known)]
        flags = dict.fromkeys(job.flags, True)
        source = job.source if again is None else again.source
        return ingest(
            self.world, source, retried=job.retried, ttl=job.ttl,
            ingest_id=None if again is None else again.ingest_id, **flags,
        )  # fmt: skip

    def _newest(self) -> int:
        runs = recorded_runs(self.world.control, self.world.tables.metadata)
        return runs[0].sequence if runs else 0

    def _visible(self) -> dict[uuid.UUID, Known]:
        """The images that exist, by what the jobs have done."""
        return {
            image: state for image, (_, state) in self.world.wanted.items()
            if state is not None and image not in self.world.deleted
        }  # fmt: skip

    def _check_step(self) -> None:
        """What holds at every moment: an image's row is there only with its bytes."""
        if not self.world.is_one_keyspace:
            return
        data = self.world.data
        for image, row in self.world.rows.items():
            if data.get(image) is None or hashlib.sha256(data[image]).digest() != row["sha256"]:
                raise BrokenError(f"the row of {image} is not that of its bytes")
            if row["xxhash64"] != checksum(data[image]):
                raise BrokenError(f"the checksum of {image} is not that of its bytes")

    def _check_rest(self) -> None:
        """What holds when no job runs."""
        rows, reading, uncertain = self.world.rows, self.world.read(), self.world.uncertain
        for image, (sequence, state) in self.world.wanted.items():
            found = state_of(rows[image]) if image in rows else None
            if found != state:
                raise BrokenError(f"{image} is {found}, and run {sequence} was the last to make it {state}")
        # in two keyspaces, a run that restores images and is killed leaves bytes without a row
        for image, data in self.world.data.items() if self.world.is_one_keyspace else ():
            if data is not None and image not in rows and image in self.world.deleted.keys() - uncertain:
                raise BrokenError(f"the bytes of {image} are there, which was deleted")
        self._check_ends(reading)
        self._check_values(reading)
        self._check_labels(reading)
        self._check_changes(reading)
        gone = self.world.deleted.keys() - uncertain - self.world.begun - rows.keys()
        if left := {image for image, _ in reading.copies} & gone:
            raise BrokenError(f"replaced bytes of {left} are there, which were deleted")
        read, there = reading.visible(), self._visible()
        for image in (read.keys() | there.keys()) - uncertain:
            if read.get(image) != there.get(image):
                raise BrokenError(f"{image} of a split is {read.get(image)}. Wanted {there.get(image)}")

    def _check_ends(self, reading: Reading) -> None:
        """A row ends as a whole, and the values of an image end with it, or before. None are left of one that ended."""
        store, metadata = self.world.store, self.world.store.ends("k.metadata")
        for name in ("k.metadata", str(self.world.tables.data)):
            if wrong := [key for key, ends in store.ends(name).items() if len(ends) > 1]:
                raise BrokenError(f"the cells of {wrong} in {name} end at different times")
        # in two keyspaces, a killed run leaves bytes with another end than their row
        if self.world.has_raced or not self.world.is_one_keyspace:
            return
        unsure = self.world.uncertain
        for table in (self.world.values, self.world.vectors):
            for (image, *_), ends in store.ends(str(table)).items():
                of_image = metadata.get((image,), {0.0})
                if image in reading.rows.keys() - unsure and max(ends) > max(of_image):
                    raise BrokenError(f"a row of {image} in {table} stays until {ends}, and the image until {of_image}")
                if image in self.world.expired - reading.rows.keys() - unsure:
                    raise BrokenError(f"a row of {image} is in {table}, which has expired")

    def _check_values(self, reading: Reading) -> None:
        """Every value is that of the bytes that it is said to be of, and none is of a deleted image."""
        for row in reading.values:
            if hashlib.sha256(str(row["f"]).encode()).digest() != row["sha256"]:
                raise BrokenError(f"the value {row['f']} of {row['id']} is not that of its bytes")
            image = row["id"]
            is_deleted = image in self.world.deleted.keys() - self.world.uncertain - self.world.expired
            if is_deleted and image not in reading.rows:
                raise BrokenError(f"the value {row['f']} of {image} is there, which was deleted")
        for row in reading.vectors:
            if hashlib.sha256(str(row["vector"][0]).encode()).digest() != row["sha256"]:
                raise BrokenError(f"the vector {row['vector']} of {row['id']} is not that of its bytes")
            if row["id"] in self.world.deleted.keys() - reading.rows.keys() - self.world.uncertain - self.world.expired:
                raise BrokenError(f"the vector of {row['id']} is there, which was deleted")
        for image, now in reading.rows.items():
            value = reading.value(image)
            if value is not None and hashlib.sha256(str(value["f"]).encode()).digest() != now["sha256"]:
                raise BrokenError(f"a split has the value {value['f']} of {image}, which has other bytes now")

    def _check_labels(self, reading: Reading) -> None:
        """A registered version never changes, but for images that were deleted since: nothing of them is left."""
        labels = {row["id"]: row for row in reading.labels}
        unsure = self.world.uncertain | self.world.expired | self.world.begun
        if gone := labels.keys() & self.world.deleted.keys() - unsure - reading.rows.keys():
            raise BrokenError(f"labels of {gone} are there, which were deleted")
        for view in reading.views:
            for image, said in self.world.versions[view.sequence or 0].items():
                is_kept = self.world.last_deletions.get(image, 0) <= (view.sequence or 0)
                row = labels.get(image, dict.fromkeys(view.label_columns))
                now = tuple(row[name] for name in view.label_columns)
                if is_kept and image not in self.world.uncertain and now != said:
                    raise BrokenError(f"{view.title} said {said} of {image}, and says {now}")
        versions = [(view.sequence or 0, self.world.versions[view.sequence or 0]) for view in reading.views]
        for image, row in reading.rows.items():
            said = (of_run[image] for _, of_run in versions if image in of_run)
            wanted = next((number for number, *seen in said if tuple(seen) == state_of(row)), row["label"])
            is_whole = all(self.world.last_deletions.get(image, 0) <= run for run, _ in versions)
            if is_whole and image not in self.world.uncertain and reading.corrected(image) != wanted:
                raise BrokenError(f"the label of {image} is {reading.corrected(image)}. Wanted {wanted}")

    def _check_finished(self, job: Job) -> None:
        """What holds after a job that ended without an error."""
        match job:
            case Ingest(continues=None):
                self._check_ingested(job)
            case Delete(paths):
                deleted = self.world.read().deleted()
                for image in map(id_of, paths):
                    if image in self.world.rows or (image in self.world.deleted and image not in deleted):
                        raise BrokenError(f"{image} is not deleted")
            case Featurize(has_index):
                self._check_featurized(has_index=has_index)
            case Relabel(labels):
                reading = self.world.read()
                for path, name in labels:
                    if id_of(path) not in reading.visible():  # left out, because it is deleted
                        continue
                    if (found := reading.corrected(id_of(path))) != CLASSES[name]:
                        raise BrokenError(f"{path} was relabelled as {name}, and is {found}")
            case Repair(None):
                if half := self._without_bytes():
                    raise BrokenError(f"{half} are repaired, and have no bytes")

    def _check_featurized(self, *, has_index: bool) -> None:
        """Images have values, which end with them if they are new, and the vectors are those of the values."""
        reading, store, half = self.world.read(), self.world.store, self.world.read().half_deleted()
        for image, row in reading.rows.items():
            is_whole = hashlib.sha256(self.world.data.get(image) or b"").digest() == row["sha256"]
            if is_whole and image not in half and reading.value(image) is None:
                raise BrokenError(f"{image} has no value")
        data, newest = store.ends(str(self.world.tables.data)), next(iter(reading.runs), None)
        for (image, sequence), ends in store.ends(str(self.world.values)).items():
            cell = store.tables[str(self.world.values)].rows[image, sequence].cells["f"]
            is_new = newest is not None and newest.kind == "features" and cell.time >= newest.clock
            if is_new and image in reading.rows and max(ends) < max(data.get((image,), {0.0})) - 60:
                raise BrokenError(
                    f"a value of {image} was computed and ends at {ends}, and the image at {data[image,]}"
                )
        wanted = {image: row["sha256"] for image, row in reading.newest_values().items()}
        if has_index and {row["id"]: row["sha256"] for row in reading.vectors} != wanted:
            raise BrokenError(f"the vectors are {reading.vectors}. Wanted those of {wanted}")

    def _check_ingested(self, job: Ingest) -> None:
        rows = self.world.rows
        files = {id_of(path): file for path, file in self.world.sources[job.source].items()}
        for image, (data, name) in files.items():
            if image in self.world.deleted or image in self.world.uncertain:
                continue
            row = rows.get(image)
            if row is None or row["label"] != CLASSES[name]:
                raise BrokenError(f"{image} was ingested, and is {row}")
            if "resume" not in job.flags and row["sha256"] != hashlib.sha256(data).digest():
                raise BrokenError(f"{image} was ingested, and has other bytes")
        # images that expire are not kept; in two keyspaces, an interrupted run has replaced bytes
        if "keep" in job.flags and self.world.is_one_keyspace and self.seen and not expiring(self.world.read().runs):
            self._check_kept()
        if "prune" in job.flags:
            left = {image for image, row in rows.items() if row["source"] == job.source} - files.keys()
            if left:
                raise BrokenError(f"{left} were pruned, and are there")

    def _check_kept(self) -> None:
        """After an ingest that keeps what it replaces, the table is there as it was before, but for removed images."""
        last = max(self.seen)
        seen, uncertain = self.seen[last]
        found = self.world.read().as_of(last)
        for image in (seen.keys() & self.world.rows.keys()) - self.world.uncertain - uncertain:
            if image not in self.world.deleted and found.get(image) == GONE:
                raise BrokenError(f"the bytes of {image} were replaced, and not kept")

    def _check_seen(self) -> None:
        """Every run that was alone shows the images that it left, or says that their bytes are gone."""
        rows, reading = self.world.rows, self.world.read()
        for sequence, (seen, uncertain) in self.seen.items():
            found = reading.as_of(sequence)
            for image in (seen.keys() | found.keys()) - self.world.uncertain - uncertain:
                if found.get(image) == seen.get(image):
                    continue
                now = rows[image]["sha256"] if image in rows and image not in self.world.deleted else None
                if found.get(image) == GONE and image in seen and now != seen[image][0]:
                    continue
                is_told = found.get(image) == GONE or (image not in found and expired(reading.runs, now=self.world.now))
                if image in self.world.expired and is_told:
                    continue
                raise BrokenError(
                    f"as of run {sequence}, {image} was {seen.get(image)}. Found: {found.get(image)}; "
                    f"its history: {[row for row in reading.history if row['id'] == image]}, now {rows.get(image)}"
                )
        for sequence, passed in self.passed.items():
            found = reading.as_of(sequence)
            for image in passed.keys() - self.world.uncertain - self.world.expired:
                writes = [one for one, written in self.world.written if written == image and one <= sequence]
                in_order = self.world.written[max(writes), image] if writes else None
                is_warned = overlapping(reading.runs, until=sequence) or unfinished(reading.runs, until=sequence)
                if not is_warned and found.get(image) not in {*passed[image], in_order, GONE}:
                    raise BrokenError(
                        f"after run {sequence}, while another one ran, {image} was {passed[image]}. Found: "
                        f"{found.get(image)}; its history: {reading.of_image(image)}, now {rows.get(image)}"
                    )
