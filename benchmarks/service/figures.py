"""The figures of the dataset service benchmark, and how much it measures."""

from dataclasses import dataclass

from benchmarks.harness.figures import Figure, Figures

FIGURES = Figures(
    {
        1: Figure("upload of one file: anonymous memory of the server", "<", 100, "MB"),
        2: Figure("upload of one file over cp and sha256sum of the same", ">=", 0.5),
        3: Figure("upload of a folder as one tar", ">=", 100, "MB/s"),
        4: Figure("download of a folder as one tar", ">=", 100, "MB/s"),
        5: Figure("a folder up and down: anonymous memory of the server", "<", 100, "MB"),
        6: Figure("download of one file over nginx (sendfile, one worker)", ">=", 0.25),
        7: Figure("download of one file", ">=", 400, "MB/s"),
        8: Figure("many clients at once: requests that failed", "<=", 0, "requests"),
        9: Figure("many clients at once: memory of the last quarter over the second", "<=", 1.1, needs="minutes"),
        10: Figure(
            "killed in mid-upload: versions that are not whole, half visible, or left behind", "<=", 0, "faults"
        ),
    }
)


@dataclass(frozen=True)
class Sizes:
    """How much is sent, how often, and for how long."""

    file_bytes: int
    files: int
    of_bytes: int
    """Bytes of each file of the folder."""
    pairs: int
    clients: int
    seconds: float
    kills: int


FULL = Sizes(2_000_000_000, 17_600, 110_000, 3, 32, 600.0, 50)
QUICK = Sizes(200_000_000, 1_000, 110_000, 3, 8, 20.0, 3)
