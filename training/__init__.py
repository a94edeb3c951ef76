"""Scripts for torchrun: training from Cassandra, shards or files, and the reading test.

Errors::

    TrainingError(ImagestrataError)     options, data, devices or checkpoints that do not go together
"""

from schemas.errors import ImagestrataError

__all__ = ["TrainingError"]


class TrainingError(ImagestrataError):
    """The training is not possible; the message says what was wanted, what was found and what to do."""
