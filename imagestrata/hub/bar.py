"""Progress bars of pushes and pulls on standard error, if rich is installed."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with a part of the work ("download", "unpack" or "push"), how much is done, and the total (bytes or files)."""


@contextmanager
def bars(wanted: bool | Progress) -> Iterator[Progress]:
    """Show a bar for each part of the work, or call a function. Shows nothing without a terminal or without rich."""
    if callable(wanted):
        yield wanted
        return
    is_wanted = wanted
    try:
        progress: Any = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(stderr=True)
    except ImportError:
        is_wanted = False
    if not is_wanted or not (console.is_terminal or console.is_jupyter):
        yield lambda part, done, total: None
        return
    columns = ("{task.description}", progress.BarColumn(), "{task.fields[shown]}", progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=console) as shown:
        tasks: dict[str, Any] = {}

        def show(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = shown.add_task(part, total=total, shown="")
            is_files = part == "unpack"
            words = f"{done:,} of {total:,} files" if is_files else f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
            shown.update(tasks[part], completed=done, shown=words)

        yield show
