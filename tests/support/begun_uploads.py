"""Multipart uploads to S3 that are not completed or aborted. Listings of objects do not show them."""

from formats.stores.storage import Storage


def begun(storage: Storage) -> list[str]:
    """The key of each incomplete upload below a storage, at most 1,000."""
    found = storage.ask("list_multipart_uploads", Prefix=f"{storage.key('')}/")
    return [str(one["Key"]) for one in found.get("Uploads", ())]
