"""What must hold whatever a network does to pushes and pulls, and whenever the service is killed: random clients of the
real service, in virtual time.

`make simulate` plays more of them.
"""

import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest

from imagestrata.hub import local_copy, pull, push
from imagestrata.service.errors import NotThereError
from imagestrata.service.stores import folders
from imagestrata.service.uploads import states
from imagestrata.service.uploads.states import UploadStates
from imagestrata.service.uploads.uploads import Uploads
from tests.support.simulation.plays import first_broken, played
from tests.support.simulation.pushes import PushScenario, push_scenario
from tests.support.simulation.service import Network


def test_random_pushes_and_pulls_break_nothing() -> None:
    assert first_broken(range(60), [push_scenario]) is None


FOUND = {
    "a push that is interrupted after its version was published publishes nothing again": PushScenario(
        number=13, clients=((0,), (1,)), sizes=(1, 1), network=Network(faults=8, interrupted=0.2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_random_pushes_have_found_holds(name: str) -> None:
    assert played(FOUND[name]) is None


_append, _unfinished, _opened = Uploads.append, UploadStates.unfinished, pull._opened


async def _anywhere(own: Uploads, name: str, identity: str, offset: int, body: Any, **more: Any) -> Any:
    with suppress(NotThereError):
        offset = own.state(name, identity).offset
    return await _append(own, name, identity, offset, body, **more)


def _unchecked(own: UploadStates, name: str, identity: str) -> Any:
    found = _unfinished(own, name, identity)
    return found and replace(found, sha256=None)


def _one_before(connection: Any, wanted: Any, have: int) -> Any:
    return _opened(connection, wanted, max(0, have - 1))


# Each with the number of a scenario that finds it soon.
FAULTS: dict[tuple[str, int], Callable[[pytest.MonkeyPatch], None]] = {
    ("bytes are taken at any offset", 107): lambda patch: patch.setattr(Uploads, "append", _anywhere),
    ("an upload has several writers", 84): lambda patch: patch.setattr(Uploads, "_alone", lambda *_: nullcontext()),
    ("a digest is not compared", 4): lambda patch: (
        patch.setattr(UploadStates, "unfinished", _unchecked),
        patch.setattr("imagestrata.service.server.upload_routes.digest_of", lambda *_, **__: None))[0],
    ("the result of an upload is forgotten", 81): lambda patch: patch.setattr(UploadStates, "finish", lambda *_: None),
    ("a version is shown before its manifest", 81): lambda patch: patch.setattr(
        folders.FolderStore, "_show", _shown_early),
    ("bodies of killed services stay", 0): lambda patch: patch.setattr(
        "imagestrata.service.stores.staging.shutil", _Unremoved),
    ("uploads that nobody continues stay", 1): lambda patch: patch.setattr(
        "imagestrata.service.stores.staging.Staging.forgotten", lambda _: iter(())),
    ("the last byte is accepted before the version is there", 36): lambda patch: patch.setattr(
        states, "_offset", lambda staged, length: (staged / "data").stat().st_size),
    ("a push begins anew each time", 115): lambda patch: patch.setattr(
        push._Record, "location", lambda _: (None, False)),
    ("a resumed pull has a byte twice", 38): lambda patch: patch.setattr(pull, "_opened", _one_before),
    ("a pull leaves earlier versions", 0): lambda patch: patch.setattr(
        local_copy.LocalCopy, "sweep", lambda *_, **__: None),
    ("equal bytes are published again", 0): lambda patch: patch.setattr(
        "imagestrata.service.stores.store._content", lambda _: object()),
    ("space stays reserved", 80): lambda patch: patch.setattr(
        "imagestrata.service.stores.room.Room.forget", lambda *_: None),
}  # fmt: skip


class _Unremoved:
    rmtree = staticmethod(lambda *_, **__: None)


def _shown_early(own: Any, name: str, staged: Any, version: Any) -> None:
    folder = own._folder(name, version.number)
    shutil.copytree(staged, folder)
    folders.sync(folder)
    (folder / "version.json").write_text(version.to_json())
    (folder / "upload.json").unlink(missing_ok=True)


@pytest.mark.parametrize(("name", "number"), FAULTS)
def test_a_planted_fault_is_found(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name, number](monkeypatch)
    assert any(played(one) for one in map(push_scenario, range(number, number + 100)))
