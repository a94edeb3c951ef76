"""How many images of an epoch may be missing before it fails: arithmetic, and the error."""

import math
from collections.abc import Sequence
from uuid import UUID

from loader.errors import MissingImageError

# A part of an epoch may miss so many standard deviations more, and so many images: of parts that should miss less than
# a tenth of one, chance lets one in 400,000 miss four.
_DEVIATIONS, _MORE = 3, 3
_SHOWN = 3  # ids in the message


def most_missing(share: float, *, samples: int, rows: int) -> int:
    """How many of the samples in this process may be missing: the share, rounded down, and more if they are a part of
    the epoch of ``rows``, in which chance may put more of the missing ones. Never more than the whole epoch may miss.
    """
    mean = share * samples
    chance = _DEVIATIONS * math.sqrt(mean * (1 - share)) + _MORE if samples < rows else 0.0
    return math.floor(min(mean + chance, share * max(samples, rows)) + 1e-9)


def check_missing(missing: Sequence[tuple[bytes, str]], share: float, *, samples: int, rows: int, epoch: int) -> None:
    """Compare what is missing so far (ids and reasons, without deleted images) with the allowed share of the
    ``samples`` of the epoch of ``rows`` in this process. Raises `MissingImageError` if it is more.
    """
    if len(missing) <= most_missing(share, samples=samples, rows=rows):
        return
    shown = ", ".join(str(UUID(bytes=one)) for one, _ in missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    raise MissingImageError(
        f"Wanted at most {share:.3g} of the images missing in epoch {epoch} (max_missing). Found: {len(missing):,} of "
        f"{samples:,} so far, a share of {len(missing) / samples:.3g}: {shown}. Does the split belong to another data "
        "table, or were rows lost? If the rest is enough, use a larger max_missing. "
        f"The first one: {missing[0][1]}"
    )
