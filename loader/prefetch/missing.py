"""How many images of an epoch may be missing before it fails. Pure arithmetic, and the error that says so."""

import math
from collections.abc import Sequence
from uuid import UUID

from loader.errors import MissingImageError

_DEVIATIONS = 3
_SHOWN = 3


def most_missing(share: float, *, samples: int, is_part: bool) -> int:
    """How many of an epoch's samples may be missing.

    That share of them, rounded down. Of samples that are a part of an epoch, as ranks and workers have it, chance may
    bring more of the missing ones together: then three standard deviations more, unless the share is 0.
    """
    mean = share * samples
    chance = _DEVIATIONS * math.sqrt(mean * (1 - share)) if is_part else 0.0
    return math.floor(mean + chance + 1e-9)


def check_missing(
    missing: Sequence[tuple[bytes, str]], share: float, *, samples: int, is_part: bool, epoch: int
) -> None:
    """Compare what is missing so far, told as ids and reasons, with the share that may be.

    ``samples`` are those of the epoch in this process.

    Raises:
        MissingImageError: More are missing.
    """
    if len(missing) <= most_missing(share, samples=samples, is_part=is_part):
        return
    shown = ", ".join(str(UUID(bytes=one)) for one, _ in missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    raise MissingImageError(
        f"Wanted at most {share:.3g} of the images missing in epoch {epoch} (max_missing). Found: {len(missing):,} of "
        f"{samples:,} so far, a share of {len(missing) / samples:.3g}: {shown}. Is another data table read than the "
        "split was made of, or were rows deleted? If the rest is enough, give a larger max_missing. "
        f"The first one: {missing[0][1]}"
    )
