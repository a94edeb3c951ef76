"""How much the benchmark of splits measures."""

from dataclasses import dataclass, replace

MILLION = 1_000_000
DISK_BYTES_A_ROW = 105
"""Two caches, the output, and Spark's temporary files."""
DISK_BYTES_BESIDES = 1_000_000_000
"""The server's tables, and the files of the pandas baseline."""


@dataclass(frozen=True)
class Sizes:
    """Rows and runs of each part; pairs are runs of two contenders in turn."""

    large: int = 100 * MILLION
    small: int = 10 * MILLION
    """A tenth of ``large``; these rows also have groups."""
    groups: int = MILLION
    warm: int = 2 * MILLION
    """Rows of the warm-up; 0 for none."""
    pairs: int = 3
    heavy_pairs: int = 1
    """Runs of a heavy class if others are measured too; with ``--only`` there are as many as of the others."""
    tables: int = 2 * MILLION
    """Rows in Cassandra."""
    table_pairs: int = 7
    memory: int = 20 * MILLION
    memory_pairs: int = 3
    command: int = 1_280_000
    command_runs: int = 3
    group_pairs: int = 3
    identity: int = 200_000
    note: str = ""
    """Why the sizes are smaller than requested."""


FULL = Sizes()
_FEW = Sizes(warm=0, pairs=1, table_pairs=1, memory_pairs=1, command_runs=1, group_pairs=1, identity=20_000)
QUICK = replace(
    _FEW, large=2 * MILLION, small=200_000, groups=20_000, tables=50_000, memory=400_000, command=400_000
)  # fmt: skip


def fitted(sizes: Sizes, *, free: int) -> Sizes:
    """The sizes that ``free`` bytes of disk allow; raises OSError if there is no room for a million rows."""
    room = (free - DISK_BYTES_BESIDES) // DISK_BYTES_A_ROW // MILLION * MILLION
    if room >= sizes.large:
        return sizes
    if room < MILLION:
        wanted = (MILLION * DISK_BYTES_A_ROW + DISK_BYTES_BESIDES) / 1e9
        raise OSError(f"Wanted {wanted:.1f} GB free for a million rows. Found: {free / 1e9:.1f} GB.")
    note = f"{room:,} rows instead of {sizes.large:,}, for which the disk had no room; "
    return replace(sizes, large=room, small=room // 10, groups=room // 100, note=note)
