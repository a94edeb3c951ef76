"""What a request may end with: each error has its status and its title."""

from collections.abc import Mapping


class ServiceError(Exception):
    """A request cannot be done; ``headers`` go with the answer."""

    status = 500
    title = "Something went wrong"

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail, self.headers = detail, dict(headers or {})


class BodyError(ServiceError):
    """A body is not what was said of it."""

    status = 400
    title = "The data cannot be used"


class TusRequestError(ServiceError):
    """A request asks for a part of the tus protocol that is not offered."""

    status = 400
    title = "Not offered"


class HeaderError(ServiceError):
    """The Host header of a request is missing, twice there, or none."""

    status = 400
    title = "Not a request that can be answered"


class NoTokenError(ServiceError):
    """Nobody said who asks, or it is not known here."""

    status = 401
    title = "A token is needed"


class NotAllowedError(ServiceError):
    """Who asks may not do that."""

    status = 403
    title = "Not allowed"


class NotThereError(ServiceError):
    """No such dataset, version, file or upload."""

    status = 404
    title = "Not found"


def no_dataset(name: str) -> NotThereError:
    """The error of a dataset that nobody made."""
    return NotThereError(f"Wanted the dataset {name!r}. Found: none of this name. Make it: POST /datasets")


class NotAcceptableError(ServiceError):
    """It cannot be given in a form that was asked for."""

    status = 406
    title = "Not available in this form"


class ConflictError(ServiceError):
    """It is there already, or elsewhere than was thought."""

    status = 409
    title = "Conflict with what is there"


class LengthError(ServiceError):
    """A length is missing that must be said."""

    status = 411
    title = "A length is needed"


class ConditionError(ServiceError):
    """The dataset is not as the request demands."""

    status = 412
    title = "The condition does not hold"


class TusVersionError(ServiceError):
    """A request is in another version of the tus protocol."""

    status = 412
    title = "Not this version of tus"


class TooLargeError(ServiceError):
    """A body is larger than the service takes."""

    status = 413
    title = "Too large"


class TypeOfBodyError(ServiceError):
    """A body of this type is not taken."""

    status = 415
    title = "Unsupported media type"


class RangeError(ServiceError):
    """No byte of what is there lies in the range."""

    status = 416
    title = "Range not satisfiable"


class HostError(ServiceError):
    """A request is meant for somebody else."""

    status = 421
    title = "Not meant for this service"


class UnreadableError(ServiceError):
    """The manifest of a version is damaged, or of a format that only newer software reads."""

    status = 500
    title = "A version cannot be read"


class RequestError(ServiceError):
    """A request's name, number or header is none."""

    status = 422
    title = "The request cannot be understood"


class ChecksumError(ServiceError):
    """The bytes of a request are not those that it says."""

    status = 460
    title = "The checksum does not match"


class TooManyError(ServiceError):
    """There are as many already as there may be."""

    status = 429
    title = "Too many"


class FullError(ServiceError):
    """There is no room left."""

    status = 507
    title = "No room left"
