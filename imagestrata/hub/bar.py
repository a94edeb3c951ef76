"""Progress bars of pushes and pulls on standard error, if rich is installed."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

Progress = Callable[[str, int, int], None]
"""Called with a part of the work ("download", "unpack" or "push"), how much is done, and the total (bytes or files)."""

Tell = Callable[[int], None]
"""Called with the number of bytes or files that are done."""


class Tells(Protocol):
    """Shows progress: returns a `Tell` for a part of the work with its total."""

    def __call__(self, what: str, total: int, /, *, is_bytes: bool = True) -> Tell:
        """Start a part of the work."""
        ...


@contextmanager
def bars(wanted: bool | Progress) -> Iterator[Tells]:
    """Show a bar for each part of the work, or call a function. Shows nothing without a terminal or without rich."""
    if callable(wanted):
        called = wanted
        yield lambda what, total, /, *, is_bytes=True: lambda done: called(what, done, total)
        return
    is_wanted = wanted
    try:
        progress: Any = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(stderr=True)
    except ImportError:
        is_wanted = False
    if not is_wanted or not (console.is_terminal or console.is_jupyter):
        yield _silent
        return
    columns = ("{task.description}", progress.BarColumn(), "{task.fields[shown]}", progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=console) as shown:

        def begin(what: str, total: int, /, *, is_bytes: bool = True) -> Tell:
            task = shown.add_task(what, total=total, shown="")

            def tell(done: int) -> None:
                words = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if is_bytes else f"{done:,} of {total:,} files"
                shown.update(task, completed=done, shown=words)

            return tell

        yield begin


def _silent(what: str, total: int, /, *, is_bytes: bool = True) -> Tell:
    return lambda done: None
