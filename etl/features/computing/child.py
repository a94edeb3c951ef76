"""Other people's functions in a child process of a task, which can hang, leak or crash without the task.

The child is started again after that. Only the image that it was at is lost.
"""

import multiprocessing
import os
import resource
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from etl.errors import FunctionError, one_line
from etl.features.computing.functions import BATCH, Function, computed, is_unchanged, load, probed
from etl.features.computing.models import load_model
from etl.features.computing.pictures import Picture
from schemas.feature_sources import Onnx, Python
from schemas.features import FeatureView

LEAK_BYTES = 1 << 30
"""A child whose memory has grown by this much since its first values is replaced."""

_START_SECONDS = 120.0
_KIBIBYTE = 1024

Found = tuple[list[Any] | None, str]


class Child:
    """Computes the values of a view, whose source is not built in, in a child process. Close it when it is no longer
    used. ``timeout`` is in seconds, for an image or a list of images. ``model`` is the copy of an ONNX model on this
    machine.
    """

    def __init__(self, view: FeatureView, *, timeout: float, model: str | None = None) -> None:
        self._view = view
        self._model = model
        self._timeout = timeout
        self._process: Any = None
        self._connection: Connection | None = None
        self._takes_lists = False
        self._number = 0  # of the last question

    def values(self, images: Sequence[bytes]) -> list[Found]:
        """For each encoded image, the value of each field as it is stored and ``""``, or None and why there is none.
        Raises `FunctionError` if the function cannot be loaded.
        """
        found: list[Found] = []
        while len(found) < len(images):
            self._start()
            count = BATCH if self._takes_lists else 1
            found += self._ask(images[len(found) : len(found) + count])
        return found

    def fields(self, image: bytes) -> tuple[dict[str, str] | None, str]:
        """The type of each field by name, inferred from the value of an encoded image, and ``""``; or None and why
        there is none. Raises `FunctionError` if the function cannot be loaded.
        """
        self._start()
        found: tuple[dict[str, str] | None, str] = self._exchange(image)
        return found

    def _ask(self, images: Sequence[bytes]) -> list[Found]:
        answer: list[Found] | None
        answer, failure = self._exchange(list(images))
        if answer is not None:
            return answer
        if len(images) == 1:
            return [(None, failure)]
        found: list[Found] = []  # one of them is to blame: each alone
        for image in images:
            self._start()
            found += self._ask([image])
        return found

    def _exchange(self, question: list[bytes] | bytes) -> Any:
        """The child's answer and ``""``, or None and why there is none."""
        assert self._connection is not None
        self._number += 1
        try:
            self._connection.send((self._number, question))
            if not self._connection.poll(self._timeout):
                self.close()
                return None, f"no value within {self._timeout:g} s"
            number, answer, failure, has_leaked = self._connection.recv()
        except (EOFError, OSError):
            self._process.join(1)
            code = self._process.exitcode
            self.close()
            return None, f"its process ended with {f'signal {-code}' if code and code < 0 else f'code {code}'}"
        if number != self._number:  # never the value of another image
            self.close()
            return None, "its process answered twice"
        if has_leaked:
            self.close()
        return answer, failure

    def _start(self) -> None:
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        # not a daemon: daemons cannot start processes, and functions may use a pool
        self._process = context.Process(target=serve, args=(other, self._view, self._model))
        self._process.start()
        other.close()
        message: str | bool = f"it did not start within {_START_SECONDS:g} s"
        try:
            if self._connection.poll(_START_SECONDS):
                message = self._connection.recv()
        except (EOFError, OSError):
            message = "its process ended while it was loaded"
        if isinstance(message, str):
            self.close()
            raise FunctionError(f"Wanted to load {self._view.source}. Found: {message}")
        self._takes_lists = message

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


def serve(connection: Connection, view: FeatureView, model: str | None = None) -> None:
    """Run in the child: say whether the function takes lists, or why it cannot be loaded; then answer questions."""
    sys.stdout = sys.stderr  # Spark reads the worker's standard output
    try:
        function = _loaded(view, model)
    except FunctionError as error:
        connection.send(one_line(error))
        return
    connection.send(function.takes_lists)
    first, process = 0, os.getpid()
    while True:
        try:
            number, question = connection.recv()
        except (EOFError, OSError):  # the task has ended
            return
        answer: tuple[Any, str]
        if isinstance(question, bytes):
            answer = probed(view, function, Picture(question))
        else:
            answer = computed(view, function, [Picture(image) for image in question]), ""
        if os.getpid() != process:  # the function has forked, and returns here too
            os._exit(0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
        first = first or peak
        connection.send((number, *answer, peak - first > LEAK_BYTES))


def _loaded(view: FeatureView, model: str | None) -> Function:
    """The function of a view, as it was when the driver saw it. Raises `FunctionError`."""
    source = view.source
    if isinstance(source, Onnx):
        return load_model(model or source.file, source=source, digest=view.digest)
    assert isinstance(source, Python)  # the task itself calls built-in functions
    function = load(source)
    if not is_unchanged(source, view.digest):
        raise FunctionError("another version of its module, or of one that it imports, than on the driver")
    return function
