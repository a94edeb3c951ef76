"""A version with an unreadable manifest, as after a rollback: the service returns no older one, and nothing is lost."""

import json
import urllib.request
from pathlib import Path

import pytest

from formats.stores.storage import Storage
from tests.support.dataset_servers import ServerInThread

DAMAGES = {
    "newer": lambda text: json.dumps({**json.loads(text), "format": 99, "more": True}).encode(),
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "not UTF-8": lambda text: b"\xff\xfe" + text,
}


class Place:
    """A folder or a bucket with datasets, and the services over it."""

    def __init__(self, root: Path, bucket: Storage | None) -> None:
        self._root, self._bucket = root, bucket
        self.storage = bucket or Storage(root)
        self.manifest = "datasets/x/versions/{}.json" if bucket else "datasets/x/versions/{}/version.json"
        self.next = "names/x" if bucket else "datasets/x/next"

    def server(self) -> ServerInThread:
        """A service over it."""
        return ServerInThread(self._root, bucket=self._bucket)

    def contents(self) -> dict[str, int]:
        """All files of datasets."""
        return dict(self.storage.walk("datasets"))

    def damage(self, number: int, how: str) -> bytes:
        """Make a version unreadable; return its manifest from before."""
        name = self.manifest.format(number)
        before = self.storage.read_bytes(name)
        self.storage.write_bytes(name, DAMAGES[how](before))
        return before


@pytest.fixture
def place(tmp_path: Path, bucket: Storage | None) -> Place:
    place = Place(tmp_path / "root", bucket)
    with place.server() as server:
        server.create("x")
        for body in (b"one", b"two", b"three"):
            assert server.put("x", body).status == 200
    return place


def body_of(server: ServerInThread, number: int) -> bytes:
    """The bytes of a version, also through a redirect."""
    with urllib.request.urlopen(f"{server.url}/datasets/x?version={number}", timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("how", DAMAGES)
def test_an_unreadable_newest_version_is_an_error_and_keeps_its_bytes(
    place: Place, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    contents = place.contents()
    before = place.damage(3, how)
    with place.server() as server:
        for path in ("", "/card", "/files", "/files/data", "/sheet", "?version=3"):
            got = server.ask("GET", f"/datasets/x{path}")
            assert (got.status, got.json["title"]) == (500, "A version cannot be read"), path
        assert [body_of(server, number) for number in (1, 2)] == [b"one", b"two"]
        card = server.ask("GET", "/datasets/x/card?version=2").json
        assert (card["newest"], [one["version"] for one in card["versions"]]) == (None, [2, 1])
        assert "version 3 of 'x'" in card["problem"]
        listed = server.ask("GET", "/datasets/x/versions").json
        assert ([one["version"] for one in listed["versions"]], listed["unreadable"]) == ([2, 1], [3])
        assert "version 3 of 'x'" in server.ask("GET", "/datasets").json["datasets"][0]["problem"]
        assert server.put("x", b"four", If_Match='"y"').status == 500
        refused = server.ask("DELETE", "/datasets/x?version=1")
        assert (refused.status, "version 3 of 'x'" in refused.json["detail"]) == (409, True)
        assert server.put("x", b"four").json["version"] == 4
        assert server.ask("GET", "/datasets/x/card").json["newest"]["version"] == 4
        assert server.ask("DELETE", "/datasets/x?version=2").status == 409
    assert caplog.text.count("version 3 of x cannot be read") == 1
    with place.server():  # the service cleans up when it starts
        pass
    assert place.contents().keys() >= contents.keys()
    place.storage.write_bytes(place.manifest.format(3), before)
    with place.server() as server:
        assert [body_of(server, number) for number in (1, 2, 3, 4)] == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("query", ["?version=3", ""])
def test_an_unreadable_version_and_its_dataset_can_be_deleted_on_purpose(place: Place, query: str) -> None:
    place.damage(3, "newer")
    with place.server() as server:
        assert server.ask("DELETE", f"/datasets/x{query}").status == 204
        if query:
            assert server.ask("GET", "/datasets/x/card").json["newest"]["version"] == 2
            assert [body_of(server, number) for number in (1, 2)] == [b"one", b"two"]
            assert server.put("x", b"four").json["version"] == 4  # version numbers are not reused
            assert server.ask("DELETE", "/datasets/x?version=2").status == 204
        else:
            assert place.contents() == {}


def test_a_version_folder_without_its_manifest_is_not_taken_for_a_deleted_version(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "root") as server:
        server.create("x")
        assert [server.put("x", body).status for body in (b"one", b"two")] == [200, 200]
        (tmp_path / "root" / "datasets" / "x" / "versions" / "2" / "version.json").unlink()
        assert server.ask("GET", "/datasets/x").status == 500
        assert server.ask("GET", "/datasets/x?version=1").body == b"one"


@pytest.mark.parametrize("text", [b"\xff", b'{"next": "x"}'])
def test_no_version_is_numbered_while_the_next_number_is_unknown(place: Place, text: bytes) -> None:
    with place.server() as server:
        assert server.ask("DELETE", "/datasets/x?version=3").status == 204
        before = place.storage.read_bytes(place.next)
        place.storage.write_bytes(place.next, text)
        for refused in (server.put("x", b"four"), server.ask("DELETE", "/datasets/x?version=1")):
            assert (refused.status, "number of the next version" in refused.json["detail"]) == (500, True)
        place.storage.write_bytes(place.next, before)
        assert server.put("x", b"four").json["version"] == 4
        place.storage.write_bytes(place.next, text)
        assert server.ask("DELETE", "/datasets/x").status == 204
