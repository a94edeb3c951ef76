"""The exception tree of this package, drawn in the package's docstring."""

from schemas.errors import ImagestrataError


class HubError(ImagestrataError):
    """A dataset service cannot be used as asked."""


class OptionError(HubError, ValueError):
    """An option is out of range, or two options contradict each other."""


class AccessError(HubError):
    """A token, certificate or TLS is refused, or the token lacks the scope."""


class UnreachableError(HubError):
    """The service does not respond, at the start or later."""


class DatasetError(HubError):
    """A dataset cannot be pushed or pulled: it is missing, damaged or changing, or the disk is full."""
