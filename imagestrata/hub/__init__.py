"""The client of a dataset service::

    from imagestrata import hub

    service = hub.connect("http://host:8080")                # a dataset service: see `imagestrata serve`
    service.push("/data/imagenette", "imagenette")           # a new version of a dataset, from a folder or a file
    service.pull("imagenette", to="/datasets")               # here: /datasets/imagenette, whole or as it was

Errors::

    HubError(Exception)
    ├── OptionError(ValueError)    an option is out of its range, or two contradict each other
    ├── AccessError                token, certificates or TLS are refused, or the right to read or write
    ├── UnreachableError           a service does not answer
    └── DatasetError               a dataset cannot be pulled or pushed: it is not there, damaged or changing
"""

from imagestrata.hub.datasets import Dataset, Datasets, PushedDataset, connect
from imagestrata.hub.errors import AccessError, DatasetError, HubError, OptionError, UnreachableError

__all__ = [
    "AccessError",
    "Dataset",
    "DatasetError",
    "Datasets",
    "HubError",
    "OptionError",
    "PushedDataset",
    "UnreachableError",
    "connect",
]
