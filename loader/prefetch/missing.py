"""How many images of an epoch may be missing before it fails: arithmetic, and the error."""

import math
from collections.abc import Sequence
from uuid import UUID

from loader.errors import MissingImageError

_DEVIATIONS = 3  # standard deviations that a part may miss more
_SHOWN = 3  # ids in the message


def most_missing(share: float, *, samples: int, is_part: bool) -> int:
    """How many of an epoch's samples may be missing: the share, rounded down, and more of a part."""
    # Ranks and workers see only a part of an epoch, in which chance may put more of the missing ones. So a part may
    # miss three standard deviations more, unless the share is 0.
    mean = share * samples
    chance = _DEVIATIONS * math.sqrt(mean * (1 - share)) if is_part else 0.0
    return math.floor(mean + chance + 1e-9)


def check_missing(
    missing: Sequence[tuple[bytes, str]], share: float, *, samples: int, is_part: bool, epoch: int
) -> None:
    """Compare what is missing so far (ids and reasons, without deleted images) with the allowed share of the
    ``samples`` of the epoch in this process. Raises `MissingImageError` if it is more.
    """
    if len(missing) <= most_missing(share, samples=samples, is_part=is_part):
        return
    shown = ", ".join(str(UUID(bytes=one)) for one, _ in missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    raise MissingImageError(
        f"Wanted at most {share:.3g} of the images missing in epoch {epoch} (max_missing). Found: {len(missing):,} of "
        f"{samples:,} so far, a share of {len(missing) / samples:.3g}: {shown}. Does the split belong to another data "
        "table, or were rows lost? If the rest is enough, use a larger max_missing. "
        f"The first one: {missing[0][1]}"
    )
