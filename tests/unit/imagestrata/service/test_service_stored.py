"""A service folder of an earlier version is served."""

from contextlib import closing
from pathlib import Path

import pytest

from formats.stores.storage import Storage
from formats.tar_index import TarIndex
from imagestrata.service.conditions import Conditions
from imagestrata.service.errors import NotThereError
from imagestrata.service.stores.folders import FolderStore
from imagestrata.service.tokens import Tokens
from imagestrata.service.uploads.uploads import Uploads
from tests.support.stored import unpack

FINISHED, UNFINISHED = "903d5dcfc1420a5703d88302ba530f3c", "3fa05f23dd229b0cda2f8941ed472f7d"


def test_datasets_tokens_and_uploads_are_read(tmp_path: Path) -> None:
    store = FolderStore(unpack("dataset_service", tmp_path))
    try:
        assert {name: store.numbers(name) for name in store.names()} == {"notes": [2, 3], "pets": [1]}
        assert [store.unreadable(name) for name in store.names()] == [{}, {}]
        note, pets = store.version("notes", 2), store.version("pets")
        assert (note.kind, note.filename, note.bytes, note.by) == ("file", "a.txt", 6, None)
        blob = store.blob("notes", note)
        assert blob.read(0, blob.size) == b"second"
        blob.close()
        assert (pets.kind, pets.files, pets.bytes) == ("folder", 2, 10_240)
        with TarIndex(store.index("pets", pets)) as index:
            assert [(one.path, one.start, one.bytes) for one in index.in_place()] == [
                ("cat/0.png", 512, 69),
                ("Kuh/1.png", 1536, 77),
            ]
        assert store.description("pets") == "Cats, dogs, Kühe."

        uploads = Uploads(store)
        done, begun = uploads.state("notes", FINISHED), uploads.state("pets", UNFINISHED)
        assert (done.offset, done.length, done.metadata) == (5, 5, "filename Yi50eHQ=")
        assert done.version == store.version("notes", 3)
        assert (begun.offset, begun.length, begun.version) == (4, 2000, None)

        tokens = Tokens(Storage(tmp_path)).all()
        assert [(token.name, token.scope) for token in tokens] == [("ci", "write")]
        assert Tokens.find_in(tokens, "ist_Cs-1bh8vxIULkvUJrpDt6toa483wIBfgEp8ZtsxKGiU") == tokens[0]
    finally:
        store.close()


def test_a_version_that_is_deleted_while_it_is_read_is_not_there(tmp_path: Path) -> None:
    with closing(FolderStore(unpack("dataset_service", tmp_path))) as store:
        pets = store.version("pets")
        store.delete("pets", None, Conditions())
        for read in (store.index, store.blob):
            with pytest.raises(NotThereError, match=r"Wanted version 1 of 'pets'\. Found: it was deleted"):
                read("pets", pets)
