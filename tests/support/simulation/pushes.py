"""Clients that push to a dataset service and pull from it, through a network that fails, and what must hold then."""

import hashlib
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent

from formats.retries import Retries
from imagestrata.hub import DatasetError, UnreachableError, connect, local_copy, tar
from imagestrata.hub import http as hub_http
from imagestrata.hub import pull as hub_pull
from imagestrata.hub import push as hub_push
from schemas.datasets import DatasetVersion
from tests.support.simulation.clock import Clock, HangError
from tests.support.simulation.cluster import brief
from tests.support.simulation.judge import BrokenError, want
from tests.support.simulation.service import URL, InterruptError, Network, Service

_NAME = "x"
_MOST_SECONDS = 20_000.0  # until all clients are done
_CALM = Network()
_DAYS = 8 * 86_400.0  # after which unfinished uploads are removed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PushScenario:
    """Clients, which push contents one after another, by number, into one dataset, and the network."""

    number: int = 0
    clients: tuple[tuple[int, ...], ...] = ((0,),)
    sizes: tuple[int, ...] = (2500,)  # of contents, in bytes
    folders: frozenset[int] = frozenset()  # contents that are folders
    part_bytes: int = 1000  # of one request
    pulls: bool = False
    network: Network = _CALM

    sizing = ("clients", "sizes", "folders")  # what `smaller` changes

    __repr__ = brief

    def smaller(self) -> "Iterator[PushScenario]":
        """Scenarios with fewer clients, pushes or folders."""
        for place, contents in enumerate(self.clients):
            others = self.clients[:place], self.clients[place + 1 :]
            if len(self.clients) > 1:
                yield replace(self, clients=(*others[0], *others[1]))
            if len(contents) > 1:
                for one in range(len(contents)):
                    yield replace(self, clients=(*others[0], contents[:one] + contents[one + 1 :], *others[1]))
        if self.folders:
            yield replace(self, folders=frozenset())
        for place, size in enumerate(self.sizes):
            for less in {1, 1001, size // 2} - {0, size}:
                if less < size:
                    yield replace(self, sizes=(*self.sizes[:place], less, *self.sizes[place + 1 :]))


_FAULTS = ("cut", "lost", "broken", "repeated", "altered", "delayed", "interrupted", "kills")


def push_scenario(number: int) -> PushScenario:
    """The scenario of a number."""
    numbers = random.Random(number)
    kinds = numbers.sample(_FAULTS, numbers.choice((1, 2, 3, len(_FAULTS))))
    count = numbers.choice((1, 2, 3))
    return PushScenario(
        number=number,
        clients=tuple(
            tuple(numbers.randrange(count) for _ in range(numbers.choice((1, 1, 2, 3))))
            for _ in range(numbers.choice((1, 1, 2, 2, 3)))
        ),
        sizes=tuple(numbers.choice((1, 999, 1000, 1001, numbers.randint(1, 8000))) for _ in range(count)),
        folders=frozenset(one for one in range(count) if numbers.random() < 0.2),
        part_bytes=numbers.choice((1000, 1000, 2500, 1 << 20)),
        pulls=numbers.random() < 0.5,
        network=Network(
            faults=numbers.choice((1, 3, 8)),
            **{kind: numbers.choice((0.05, 0.2, 0.5)) * (0.1 if kind == "kills" else 1.0) for kind in kinds},
        ),
    )


class PushPlay:
    """Plays a scenario in a folder of its own."""

    def __init__(self, scenario: PushScenario) -> None:
        self.scenario = scenario
        numbers = random.Random(scenario.number)
        self._contents = [bytes([one]) + numbers.randbytes(size - 1) for one, size in enumerate(scenario.sizes)]
        self._digests: dict[str, int] = {}  # contents by SHA-256
        self._done: list[tuple[int, int]] = []  # content and version of each push that has succeeded
        self._errors: list[BaseException] = []
        self._waiting = 0

    def run(self) -> None:
        """Play it. Raises `BrokenError`."""
        with tempfile.TemporaryDirectory(prefix="imagestrata-pushes-") as folder:
            root, clock = Path(folder), Clock(self.scenario.number)
            service = Service(root / "service", clock, self.scenario.network)
            try:
                with ExitStack() as seams:
                    for seam in self._seams(root, clock):
                        seams.enter_context(seam)
                    seams.enter_context(service.seams())
                    self._live(root, clock, service)
                    self._check(service)
            except HangError as error:
                raise BrokenError(f"hangs: {error}") from error
            finally:
                service.stop()
                service.end()

    def _seams(self, root: Path, clock: Clock) -> list[Any]:
        virtual = SimpleNamespace(time=time.time, monotonic=lambda: clock.now, sleep=clock.sleep)
        retries = partial(Retries, clock=virtual.monotonic, sleep=clock.sleep, uniform=clock.random.uniform)
        return [
            patch.dict(os.environ, {"XDG_CACHE_HOME": str(root / "cache")}),
            patch.object(hub_http, "Retries", retries),
            patch.object(hub_http, "log", SimpleNamespace(warning=lambda *_: None)),
            patch.object(hub_http, "ca_bundle", lambda: None),
            patch.object(hub_push, "time", virtual),
            patch.object(hub_push, "_PART", self.scenario.part_bytes),
            patch.object(hub_pull, "_BLOCK", 300),
            patch.object(local_copy, "time", virtual),
            patch.object(local_copy, "_on_disk", lambda _: None),
        ]

    def _live(self, root: Path, clock: Clock, service: Service) -> None:
        clock.deadline = _MOST_SECONDS
        self._waiting = len(self.scenario.clients)
        for number, contents in enumerate(self.scenario.clients):
            clock.start(partial(self._client, root / f"client{number}", contents, service), "client")
        clock.wait(lambda: not self._waiting)
        if self._errors:
            raise self._errors[0]
        service.is_calm = True
        clock.sleep(60)  # until late requests have arrived
        service.stop()
        service.start()
        for path in service.store.staging.folder.glob("*/data"):
            os.utime(path, (time.time() - _DAYS,) * 2)
        self._waiting = 1
        self._contents.append(b"the last")
        clock.start(partial(self._client, root / "last", (len(self._contents) - 1,), service), "client")
        clock.wait(lambda: not self._waiting)
        if self._errors:
            raise self._errors[0]

    def _client(self, home: Path, contents: tuple[int, ...], service: Service) -> None:
        """Push contents one after another, each until that succeeds."""
        try:
            home.mkdir()
            for content in contents:
                path = self._written(home, content)
                sent, faults = service.sent[getcurrent()], service.faults.total()
                push = partial(connect(URL).push, path, _NAME, create=True, progress=False)
                pushed = self._until_done(service, push)
                want(self._digests.get(pushed.sha256) == content, f"{pushed} is not content {content}")
                self._done.append((content, pushed.version))
                faults = service.faults.total() - faults
                self._check_sent(service.sent[getcurrent()] - sent, pushed.bytes, faults)
                if self.scenario.pulls:
                    self._until_done(service, partial(connect(URL).pull, _NAME, home / "to", progress=False))
                    self._check_pulled(home / "to")
        except BaseException as error:
            self._errors.append(error)
        self._waiting -= 1

    def _until_done(self, service: Service, call: Any) -> Any:
        """Call something until it succeeds; a user would."""
        while True:
            try:
                return call()
            except (InterruptError, UnreachableError):
                pass
            except DatasetError as error:
                service.altered -= 1  # it is the reason
                want(service.altered >= 0, f"fails: {error}")
            service.clock.sleep(5)

    def _written(self, home: Path, content: int) -> Path:
        """The file or folder of a content, as the client has it now."""
        path, data = home / "data", self._contents[content]
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if content in self.scenario.folders:
            path.mkdir()
            (path / "one").write_bytes(data)
            (path / "two").write_bytes(data[::-1])
            source: tar.Source = tar.FolderSource(path)
        else:
            path.write_bytes(data)
            source = tar.FileSource(path)
        digest = hashlib.sha256(b"".join(source.blocks(0, source.length))).hexdigest()
        self._digests[digest] = content
        return path

    def _check_sent(self, sent: int, size: int, faults: int) -> None:
        """Whether a push has continued, and not begun again."""
        network = self.scenario.network
        if not network.altered:  # then it must begin again
            each = 2 if network.repeated or network.delayed else 1  # parts are refused while another request writes
            most = size + min(size, self.scenario.part_bytes) * (each * faults + 1)
            want(sent <= most, f"sends {sent} bytes to push {size}")

    def _check_pulled(self, to: Path) -> None:
        """Whether a pulled copy is one of the contents, complete, with nothing beside it."""
        found = {path.name: path.read_bytes() for path in (to / _NAME).iterdir()}
        folders = [{"one": one, "two": one[::-1]} for one in self._contents]
        files = [{"data": one} for one in self._contents]
        want(found in folders or found in files, f"pulls {sorted(found)} with other bytes")
        rest = [path.name for path in (to / ".imagestrata" / _NAME).iterdir() if path.name != "lock"]
        want(len(rest) == 1, f"leaves {rest} beside a pulled copy")

    def _check(self, service: Service) -> None:
        """What must hold at the end."""
        store, counts = service.store, Counter[int]()
        versions = {one.number: one for one in store.versions(_NAME)}
        want([*versions] == store.numbers(_NAME), f"has {store.numbers(_NAME)}, of which {[*versions]} can be read")
        published = [self._content(service.root, number, version) for number, version in versions.items()]
        counts.update(published)
        want(all(one != other for one, other in pairwise(published)), f"publishes equal versions: {published}")
        for content, number in self._done:
            want(number in versions, f"says that version {number} was published; there are {sorted(versions)}")
            want(self._digests[versions[number].sha256] == content, f"version {number} is not content {content}")
        pushes = Counter(content for contents in self.scenario.clients for content in contents)
        pushes[len(self._contents) - 1] = 1
        want(all(count <= pushes[one] for one, count in counts.items()), f"publishes {counts} for pushes of {pushes}")
        for name in ("incoming", "trash"):
            left = [str(path.relative_to(service.root)) for path in (service.root / name).rglob("*")]
            want(not left, f"leaves {left}")
        room = store.room
        want(room.arriving == 0, f"counts {room.arriving} bytes that arrive")
        want(room.used == sum(one.bytes for one in versions.values()), f"counts {room.used} bytes of versions")

    def _content(self, root: Path, number: int, version: DatasetVersion) -> int:
        """Which content a version has. Raises `BrokenError` if it is none, or not complete."""
        data = (root / "datasets" / _NAME / "versions" / str(number) / "data").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        want((version.sha256, version.bytes) == (digest, len(data)), f"version {number} has other bytes than it says")
        want(digest in self._digests, f"version {number} has the bytes of no push")
        return self._digests[digest]
