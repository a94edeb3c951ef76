"""Points in the history of a metadata table, as users write them: a run, an ingest, or a time."""

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

_SEQUENCE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class AsOf:
    """A point in the history of a metadata table, as the user wrote it: the number of a run, an ingest id or a time
    with its offset from UTC. One of them is set.
    """

    text: str
    sequence: int | None = None
    ingest_id: uuid.UUID | None = None
    time: datetime | None = None

    @classmethod
    def parse(cls, text: str) -> "AsOf":
        """Parse the number of a run, an ingest id, or a time in ISO 8601, in UTC unless it has an offset. Raises
        ValueError.
        """
        text = text.strip()
        if _SEQUENCE.fullmatch(text):
            return cls(text, sequence=int(text))
        try:
            return cls(text, ingest_id=uuid.UUID(text))
        except ValueError:
            pass
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                "Wanted the number of a run, an ingest id, or a time such as 2026-03-01 or 2026-03-01T12:00 (UTC). "
                f"Found: {text!r}"
            ) from None
        return cls(text, time=time if time.tzinfo else time.replace(tzinfo=UTC))

    def __str__(self) -> str:
        return self.text
