"""The figures of many concurrent clients, and of a server that is killed repeatedly."""

import hashlib
import http.client
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness.processes import quarter_peaks, run_process, worker
from benchmarks.harness.results import Row, tell
from benchmarks.service.figures import FIGURES
from benchmarks.service.fixture import Fixture, memory_of
from imagestrata.devstack.servers.dataset_server import DatasetServer

CLIENTS, KILLS = (8, 9), (10,)
_UPLOADS = 4
_KILL_BYTES = 30_000_000


def rows_of_clients(fixture: Fixture) -> dict[int, Row]:
    """Many clients for some time; the server's memory in each quarter of it."""
    sizes = fixture.sizes
    with fixture.service() as service:
        order = {"port": service.port, "clients": sizes.clients, "seconds": sizes.seconds, "seed": 0}
        with memory_of(service, seconds=0.2) as samples:
            answer = run_process(worker("service.clients:ask", order), limit=sizes.seconds + 300).answer
    for text in answer["told"]:
        tell(f"failed: {text}")
    if len(samples) < 4:
        raise ValueError(f"Wanted memory in four quarters. Found: it was looked at {len(samples)} times")
    quarters = quarter_peaks(samples, start=samples[0][0], end=samples[-1][0])
    asked = sum(answer["counts"].values())
    note = (
        f"{sizes.clients} clients, {sizes.seconds:,.0f} s, {asked:,} requests and more ({answer['counts']}); the most "
        f"memory in each quarter: {', '.join(f'{one:.0f}' for one in quarters)} MB"
    )
    tell(note)
    return {
        8: FIGURES.value_row(8, float(answer["failed"]), note=note),
        9: FIGURES.value_row(9, quarters[3] / quarters[1], note=note),
    }


def rows_of_kills(fixture: Fixture) -> dict[int, Row]:
    """Several clients upload while the server is killed repeatedly at random moments."""
    root, chance, faults = fixture.folder / "killed", random.Random(0), []
    acknowledged: dict[tuple[str, int], str] = {}
    names = [f"set-{number}" for number in range(_UPLOADS)]
    with DatasetServer(root) as service:
        for name in names:
            service.create(name)
    interrupted = 0
    for turn in range(fixture.sizes.kills):
        with DatasetServer(root) as service:
            faults += faults_in(service, root, names, acknowledged)
            with ThreadPoolExecutor(_UPLOADS) as pool:
                uploads = [pool.submit(_upload, service, name, turn, acknowledged) for name in names]
                time.sleep(chance.uniform(0.0, 1.5))
                interrupted += sum(not upload.done() for upload in uploads)
                service.kill()
            for upload in uploads:
                upload.result()
        if (turn + 1) % 10 == 0:
            tell(f"killed {turn + 1} times, {interrupted} uploads cut off, {len(faults)} faults")
    with DatasetServer(root) as service:
        faults += faults_in(service, root, names, acknowledged)
        place = next((root / "datasets").rglob("data"))
        place.write_bytes(place.read_bytes()[::-1])
        if not faults_in(service, root, names, acknowledged):
            raise RuntimeError("Wanted a version that is damaged on purpose to be a fault. Found: none")
    shutil.rmtree(root, ignore_errors=True)
    for text in faults[:20]:
        tell(f"fault: {text}")
    note = (
        f"{fixture.sizes.kills} kills among {_UPLOADS} uploads of {_KILL_BYTES / 1e6:.0f} MB, {interrupted} of which "
        f"were cut off; {len(acknowledged)} versions were acknowledged"
    )
    tell(note)
    return {10: FIGURES.value_row(10, float(len(faults)), note=note, runs=fixture.sizes.kills)}


def faults_in(
    service: DatasetServer, root: Path, names: list[str], acknowledged: dict[tuple[str, int], str]
) -> list[str]:
    """The problems after a kill: incomplete, lost or half-visible versions, and space that was not freed."""
    found = []
    shown: set[tuple[str, int]] = set()
    for name in names:
        versions = service.ask("GET", f"/datasets/{name}/card").json["versions"]
        for version in versions:
            shown.add((name, version["version"]))
            got = service.ask("GET", f"/datasets/{name}?version={version['version']}")
            if got.status != 200 or hashlib.sha256(got.body).hexdigest() != version["sha256"]:
                what = f"{got.status}, {len(got.body)} bytes, another SHA-256 than told"
                found.append(f"{name} {version['version']}: {what}")
            if acknowledged.get((name, version["version"]), version["sha256"]) != version["sha256"]:
                found.append(f"{name} {version['version']} is another than was acknowledged")
        for version in versions[2:]:  # make room for the next ones
            service.ask("DELETE", f"/datasets/{name}?version={version['version']}")
            acknowledged.pop((name, version["version"]), None)
    found += [
        f"{name} {number} was acknowledged and is gone" for name, number in acknowledged if (name, number) not in shown
    ]
    left = (path for folder in ("incoming", "trash") for path in (root / folder).iterdir())
    return found + [f"{path.name} was left behind" for path in left]


def _upload(service: DatasetServer, name: str, turn: int, acknowledged: dict[tuple[str, int], str]) -> None:
    """Upload versions until the server is killed."""
    for number in range(1000):
        body = random.Random(f"{name} {turn} {number}").randbytes(_KILL_BYTES)
        try:
            answer = service.ask("PUT", f"/datasets/{name}", body)
        except (OSError, http.client.HTTPException):
            return
        if answer.status == 200:
            acknowledged[name, answer.json["version"]] = answer.json["sha256"]
