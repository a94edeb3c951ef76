"""The exception of this package, drawn in the package's docstring."""


class TrainingError(Exception):
    """It cannot be trained as asked; the message says what was wanted, what was found and what to do."""
