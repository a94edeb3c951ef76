"""Errors of requests, each with an HTTP status and a title."""

from collections.abc import Mapping

from schemas.errors import ImagestrataError


class ServiceError(ImagestrataError):
    """A request failed. ``headers`` are added to the response."""

    status = 500
    title = "Something went wrong"

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail, self.headers = detail, dict(headers or {})


class BodyError(ServiceError):
    """A body does not match its description."""

    status = 400
    title = "The data cannot be used"


class TusRequestError(ServiceError):
    """A request uses a part of the tus protocol that is not supported."""

    status = 400
    title = "Not supported"


class HeaderError(ServiceError):
    """The Host header of a request is missing, repeated or malformed."""

    status = 400
    title = "Bad Host header"


class NoTokenError(ServiceError):
    """A request has no token, or an unknown one."""

    status = 401
    title = "A token is needed"


class NotAllowedError(ServiceError):
    """The token of a request does not permit it."""

    status = 403
    title = "Not allowed"


class NotThereError(ServiceError):
    """There is no such dataset, version, file or upload."""

    status = 404
    title = "Not found"


def no_dataset(name: str) -> NotThereError:
    """Return the error for a dataset that does not exist."""
    return NotThereError(
        f"Wanted the dataset {name!r}. Found: none of this name. `imagestrata list` or GET /datasets shows the names; "
        "POST /datasets creates one"
    )


class NotAcceptableError(ServiceError):
    """The content is not available in a requested media type."""

    status = 406
    title = "Not available in this form"


class ConflictError(ServiceError):
    """The target exists already, or is in another state than the request assumes."""

    status = 409
    title = "Conflict"


class LengthError(ServiceError):
    """A required length is missing."""

    status = 411
    title = "A length is needed"


class ConditionError(ServiceError):
    """A condition of the request does not hold."""

    status = 412
    title = "The condition does not hold"


class TusVersionError(ServiceError):
    """A request uses another version of the tus protocol."""

    status = 412
    title = "Unsupported version of tus"


class TooLargeError(ServiceError):
    """A body is larger than the limit."""

    status = 413
    title = "Too large"


class TypeOfBodyError(ServiceError):
    """A body has an unsupported media type."""

    status = 415
    title = "Unsupported media type"


class RangeError(ServiceError):
    """The requested range is outside the content."""

    status = 416
    title = "Range not satisfiable"


class HostError(ServiceError):
    """A request is for another host."""

    status = 421
    title = "Wrong host"


class UnreadableError(ServiceError):
    """The manifest of a version is damaged, or written by newer software."""

    status = 500
    title = "A version cannot be read"


class TokensError(ServiceError):
    """The file of tokens is damaged or cannot be read, so no request can be admitted."""

    status = 503
    title = "The tokens cannot be read"


class RequestError(ServiceError):
    """A name, number or header of a request is invalid."""

    status = 422
    title = "Invalid request"


class ChecksumError(ServiceError):
    """The bytes of a request do not match its checksum."""

    status = 460
    title = "The checksum does not match"


class TooManyError(ServiceError):
    """A limit on the number of uploads is reached."""

    status = 429
    title = "Too many"


class FullError(ServiceError):
    """The disk or the quota is full."""

    status = 507
    title = "Insufficient storage"
