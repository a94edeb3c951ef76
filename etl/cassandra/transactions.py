"""Retries of lightweight transactions and serial reads that conflict with those of other runs."""

from etl.errors import UnreachableError
from formats.retries import Retries

_RETRIES = Retries(seconds=120.0)


class TransactionRetries:
    """Pauses between attempts, for two minutes at most. After that time, the error begins with ``wanted``."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.renew()

    def renew(self) -> None:
        """Start the two minutes again, after an attempt that succeeded."""
        self._attempts = _RETRIES.begin()

    def wait(self) -> None:
        """Wait before the next attempt. Raises `UnreachableError` if the time is over."""
        if not self._attempts.again():
            raise UnreachableError(
                f"{self._wanted} Found: no transaction was applied in {_RETRIES.seconds:.0f} s, because other runs "
                "were faster, or nodes were down or too busy. Run again later."
            )
