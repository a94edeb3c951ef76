"""The client of a dataset service::

    from imagestrata import hub

    service = hub.connect("http://host:8080")                # a service: see `imagestrata serve`
    service.push("/data/imagenette", "imagenette")           # publish a folder or a file as a new version
    service.pull("imagenette", to="/datasets")               # download it to /datasets/imagenette

Errors::

    HubError(ImagestrataError)
    ├── OptionError(ValueError)    an option is out of range, or two options contradict each other
    ├── AccessError                a token, certificate or TLS is refused, or the token lacks the scope
    ├── UnreachableError           the service does not respond
    └── DatasetError               a dataset cannot be pulled or pushed: it is missing, damaged or changing
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
