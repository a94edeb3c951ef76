"""The exception of this package, drawn in the package's docstring."""


class TrainingError(Exception):
    """It cannot be trained as asked; the message says what was wanted, what was found and what to do."""


def one_line(error: Exception) -> str:
    """Another's error for the end of a message of ours: its kind and its words, which may be many."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
