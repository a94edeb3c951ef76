"""Errors of requests, each with an HTTP status and a title."""

from collections.abc import Mapping

from schemas.errors import ImagestrataError


class ServiceError(ImagestrataError):
    """A request failed. ``headers`` are added to the response. Each subclass has its own status and title."""

    status = 500
    title = "Something went wrong"

    def __init_subclass__(cls, *, status: int, title: str) -> None:
        cls.status, cls.title = status, title

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail, self.headers = detail, dict(headers or {})


class BodyError(ServiceError, status=400, title="The data cannot be used"):
    """A body does not match its description."""


class TusRequestError(ServiceError, status=400, title="Not supported"):
    """A request uses a part of the tus protocol that is not supported."""


class HeaderError(ServiceError, status=400, title="Bad Host header"):
    """The Host header of a request is missing, repeated or malformed."""


class NoTokenError(ServiceError, status=401, title="A token is needed"):
    """A request has no token, or an unknown one."""


class NotAllowedError(ServiceError, status=403, title="Not allowed"):
    """The token of a request does not permit it."""


class NotThereError(ServiceError, status=404, title="Not found"):
    """There is no such dataset, version, file or upload."""


def no_dataset(name: str) -> NotThereError:
    """Return the error for a dataset that does not exist."""
    return NotThereError(
        f"Wanted the dataset {name!r}. Found: none of this name. `imagestrata list` or GET /datasets shows the names; "
        "POST /datasets creates one"
    )


class NotAcceptableError(ServiceError, status=406, title="Not available in this form"):
    """The content is not available in a requested media type."""


class ConflictError(ServiceError, status=409, title="Conflict"):
    """The target exists already, or is in another state than the request assumes."""


class LengthError(ServiceError, status=411, title="A length is needed"):
    """A required length is missing."""


class ConditionError(ServiceError, status=412, title="The condition does not hold"):
    """A condition of the request does not hold."""


class TusVersionError(ServiceError, status=412, title="Unsupported version of tus"):
    """A request uses another version of the tus protocol."""


class TooLargeError(ServiceError, status=413, title="Too large"):
    """A body is larger than the limit."""


class TypeOfBodyError(ServiceError, status=415, title="Unsupported media type"):
    """A body has an unsupported media type."""


class RangeError(ServiceError, status=416, title="Range not satisfiable"):
    """The requested range is outside the content."""


class HostError(ServiceError, status=421, title="Wrong host"):
    """A request is for another host."""


class UnreadableError(ServiceError, status=500, title="A version cannot be read"):
    """The manifest of a version is damaged, or written by newer software."""


class TokensError(ServiceError, status=503, title="The tokens cannot be read"):
    """The file of tokens is damaged or cannot be read, so no request can be admitted."""


class RequestError(ServiceError, status=422, title="Invalid request"):
    """A name, number or header of a request is invalid."""


class ChecksumError(ServiceError, status=460, title="The checksum does not match"):
    """The bytes of a request do not match its checksum."""


class TooManyError(ServiceError, status=429, title="Too many"):
    """A limit on the number of uploads is reached."""


class FullError(ServiceError, status=507, title="Insufficient storage"):
    """The disk or the quota is full."""
