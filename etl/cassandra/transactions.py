"""How long a lightweight transaction, or a read of what one writes, is tried again when others are in the way."""

from etl.errors import UnreachableError
from formats.retries import Retries

_RETRIES = Retries(seconds=120.0)


class TransactionRetries:
    """Pauses between the attempts at a transaction, until they have taken too long.

    ``wanted`` is the first sentence of the error then.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._attempts = _RETRIES.begin()

    def wait(self) -> None:
        """Wait before the next attempt. Raises `UnreachableError`."""
        if not self._attempts.again():
            raise UnreachableError(
                f"{self._wanted} Found: no transaction was applied in {_RETRIES.seconds:.0f} s, because other runs "
                "were faster or the server was too busy. Run again later."
            )
