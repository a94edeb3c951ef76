"""Feature views: named and versioned values of images, which Spark computes once.

`online_features` reads the values of some images by id, and `historical_features` those that were known at a point in
time.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from etl.features.retrieval import historical_features, online_features

__all__ = ["historical_features", "online_features"]


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("etl.features.retrieval"), name)  # imported on first use, as Spark is
