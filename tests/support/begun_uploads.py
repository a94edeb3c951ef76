"""Uploads to S3 that were begun and neither completed nor given up, which no listing of objects shows."""

from formats.stores.storage import Storage


def begun(storage: Storage) -> list[str]:
    """The key of each such upload below a storage, of 1,000 at most."""
    found = storage.ask("list_multipart_uploads", Prefix=f"{storage.key('')}/")
    return [str(one["Key"]) for one in found.get("Uploads", ())]
