"""How long a lightweight transaction, or a read of what one writes, is tried again when others are in the way."""

import random
import time

from etl.errors import UnreachableError

_PATIENCE_SECONDS = 120.0
_BACK_OFF_SECONDS = 1.0


class Patience:
    """Pauses between the attempts at a transaction, until they have taken too long.

    ``wanted`` is the first sentence of the error then.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.renew()

    def renew(self) -> None:
        """Begin to wait anew: there was progress."""
        self._deadline = time.monotonic() + _PATIENCE_SECONDS

    def pause(self) -> None:
        """Wait a while; runs that try again at the same time get into each other's way. Raises `UnreachableError`."""
        if time.monotonic() > self._deadline:
            raise UnreachableError(
                f"{self._wanted} Found: no transaction was applied in {_PATIENCE_SECONDS:.0f} s, because other runs "
                "were faster or the server was too busy. Run again later."
            )
        time.sleep(random.uniform(0, _BACK_OFF_SECONDS))
