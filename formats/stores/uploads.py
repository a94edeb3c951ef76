"""Multipart uploads: objects of an S3 storage that are sent piece by piece and appear when they are complete."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

from formats.stores.http import Requests

_SENDERS = 2


class Bucket(Protocol):
    """The requests to an S3 storage that an upload needs."""

    address: str

    def ask(self, method: str, **named: Any) -> dict[str, Any]:
        """Send a request by its name in the API."""
        ...

    def signed(self, name: str, *, method: str, seconds: int = ..., **more: str | int) -> str:
        """Make a presigned URL for a method."""
        ...

    def key(self, name: str) -> str:
        """The key of an object."""
        ...


class Upload:
    """One object of an S3 storage, sent in parts, three of which are in memory. It appears when the block ends. After
    an error the upload is aborted. `Storage.abandon` removes the uploads of killed processes.
    """

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="upload")
        self._idle = [Requests() for _ in range(_SENDERS)]
        self._sending: deque[Future[str]] = deque()
        self._tags: list[str] = []
        self._id: str | None = None

    def __enter__(self) -> Self:
        self._id = str(self._bucket.ask("create_multipart_upload", Key=self._bucket.key(self._name))["UploadId"])
        return self

    def write(self, *parts: bytes) -> None:
        """Send the next part, given as one or several ``bytes``. Waits while too many parts are being sent."""
        while len(self._sending) >= _SENDERS:
            self._await()
        number = len(self._tags) + len(self._sending) + 1
        self._sending.append(self._senders.submit(self._send, number, parts))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._complete()
        except BaseException:
            self._abort()
            raise
        finally:
            if error is not None:
                self._abort()
            self._senders.shutdown()
            for requests in self._idle:
                requests.close()

    def _send(self, number: int, data: Sequence[bytes]) -> str:
        requests = self._idle.pop()  # there are as many as threads
        try:
            url = self._bucket.signed(self._name, method="upload_part", UploadId=str(self._id), PartNumber=number)
            return requests.put(url, data, place=f"{self._bucket.address}/{self._name}")
        finally:
            self._idle.append(requests)

    def _await(self) -> None:
        self._tags.append(self._sending.popleft().result())

    def _complete(self) -> None:
        while self._sending:
            self._await()
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, 1)]
        self._bucket.ask(
            "complete_multipart_upload",
            Key=self._bucket.key(self._name),
            UploadId=self._id,
            MultipartUpload={"Parts": parts},
        )

    def _abort(self) -> None:
        while self._sending:
            with suppress(Exception):  # there is an error already
                self._sending.popleft().result()
        with suppress(Exception):
            self._bucket.ask("abort_multipart_upload", Key=self._bucket.key(self._name), UploadId=self._id)
