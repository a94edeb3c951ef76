"""Scripts for torchrun: training from Cassandra, shards or files, and the reading test.

Errors::

    TrainingError(ImagestrataError)     options, data, devices or checkpoints that do not go together
"""

from training.errors import TrainingError

__all__ = ["TrainingError"]
