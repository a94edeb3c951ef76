"""Runs that publish into one folder at once: what readers find then."""

import json
import random
import re
from collections.abc import Callable, Mapping
from functools import partial

from etl.errors import OutputExistsError
from etl.writing.publication import Kind, Publication
from formats.stores.storage import Storage
from tests.support.turns import Killed, Turns

KIND = Kind(
    new="output",
    old="output",
    otherwise="use another folder",
    manifests=("_manifest.json",),
    folders="rows".__eq__,
    files=re.compile(r"rows/.*").fullmatch,
    beside=re.compile(r"_page\.html|\._page\.html.*|\._manifest\.json.*").fullmatch,
)
FILES = 2


def publish(address: str, name: str, *, overwrite: bool = True) -> None:
    """Publish an output of some files and a page, all with this name in them."""
    with Publication(address, KIND, overwrite=overwrite) as output:
        files = [f"rows/{name}-{output.tag}-{number}.parquet" for number in range(FILES)]
        attempt = output.aside("").rstrip("/").rpartition("/")[2]
        for file in files:
            output.storage.write_bytes(f"{attempt}/{file}", name.encode())
        output.move_in({file: file for file in files})
        manifest = json.dumps({"name": name, "files": files})
        output.publish(manifest, files=files, beside={"_page.html": name.encode()})


def published(address: str) -> str | None:
    """The name of the output in a folder, which must be whole; its page is its own, or missing."""
    storage = Storage(address)
    if not storage.exists("_manifest.json"):
        return None
    manifest = json.loads(storage.read_text("_manifest.json"))
    name = str(manifest["name"])
    for file in manifest["files"]:
        assert storage.read_text(file) == name
    if storage.exists("_page.html"):
        assert storage.read_text("_page.html") == name
    return name


def check_turns(address: str, *, seed: int, kills: Mapping[str, int] | None = None, overwrite: bool = True) -> set[str]:
    """Publish twice at once, in the order of a seed, over an old output if it may be replaced; returns those that have
    succeeded. What is in the folder then is theirs, and the next run replaces it as a whole.
    """
    if overwrite:
        publish(address, "old")
    turns = Turns(random.Random(seed))
    works: dict[str, Callable[[], object]] = {
        name: partial(publish, address, name, overwrite=overwrite) for name in ("one", "two")
    }
    with turns.on_storages():
        ended = turns.run(works, kills=kills)
    for error in ended.values():
        assert error is None or isinstance(error, OutputExistsError | Killed), repr(error)
    done = {name for name, error in ended.items() if error is None}
    killed = {name for name, error in ended.items() if isinstance(error, Killed)}
    found = published(address)
    assert found in done | killed | (set() if done else {"old" if overwrite else None}), (found, ended)
    publish(address, "last")
    assert published(address) == "last"
    files = set(Storage(address).files("")) - {"_manifest.json", "_page.html"}
    assert len(files) == FILES, files
    return done
