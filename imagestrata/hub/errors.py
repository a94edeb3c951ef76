"""The exception tree of this package, drawn in the package's docstring."""


class HubError(Exception):
    """A dataset service cannot be used as asked."""


class OptionError(HubError, ValueError):
    """An option is out of its range, or two options contradict each other."""


class AccessError(HubError):
    """A service answers, but one side refuses the other: token, certificates, TLS or the right to read or write."""


class UnreachableError(HubError):
    """A service does not answer, at the start or later."""


class DatasetError(HubError):
    """A dataset cannot be pushed or pulled: the service has it not, or the bytes, a file or the disk are in the way."""
