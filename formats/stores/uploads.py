"""Multipart uploads: objects of an S3 storage that are sent piece by piece and appear when they are complete."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from formats.stores.http import Requests

_SENDERS = 2


class Upload:
    """One object of an S3 storage, sent in parts, three of which are in memory. It appears when the block ends. After
    an error the upload is aborted. `Storage.abandon` removes the uploads of killed processes. ``ask`` sends a request
    about the object, by its name in the API; ``signed`` makes the presigned URL of a part.
    """

    def __init__(self, ask: Callable[..., dict[str, Any]], signed: Callable[..., str], *, place: str) -> None:
        self._ask, self._signed, self._place = ask, signed, place
        self._senders = ThreadPoolExecutor(_SENDERS, thread_name_prefix="upload")
        self._idle = [Requests() for _ in range(_SENDERS)]
        self._sending: deque[Future[str]] = deque()
        self._tags: list[str] = []
        self._id: str | None = None

    def __enter__(self) -> Self:
        self._id = str(self._ask("create_multipart_upload")["UploadId"])
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
            return requests.put(self._signed(UploadId=str(self._id), PartNumber=number), data, place=self._place)
        finally:
            self._idle.append(requests)

    def _await(self) -> None:
        self._tags.append(self._sending.popleft().result())

    def _complete(self) -> None:
        while self._sending:
            self._await()
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, 1)]
        self._ask("complete_multipart_upload", UploadId=self._id, MultipartUpload={"Parts": parts})

    def _abort(self) -> None:
        while self._sending:
            with suppress(Exception):  # there is an error already
                self._sending.popleft().result()
        with suppress(Exception):
            self._ask("abort_multipart_upload", UploadId=self._id)
