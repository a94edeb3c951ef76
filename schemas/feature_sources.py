"""Sources of feature views: what computes their values, as stored text and as users write it.

=============  ==============================  =====================
source         stored text                     as users write it
=============  ==============================  =====================
`Builtin`      ``builtin:NAME``                ``NAME``
`Python`       ``python:MODULE:FUNCTION``      ``MODULE:FUNCTION``
`Onnx`         ``onnx:PREPROCESS:FILE``        ``onnx:FILE``
`Sql`          ``sql:EXPRESSION``              ``sql:EXPRESSION``
`Labels`       ``labels:FILE``                 ``FILE``
=============  ==============================  =====================
"""

import re
from dataclasses import dataclass

from schemas.errors import SchemaError

SQL = "sql:"  # what an SQL expression begins with, stored and as users write it

# How pixels become the input of a model. `etl.features.computing.models` says what each does.
PREPROCESSES = ("imagenet", "clip", "0-1", "none")

_SIZE = re.compile(r"([1-9][0-9]{0,3})(?:x([1-9][0-9]{0,3}))?")


@dataclass(frozen=True, slots=True)
class Preprocess:
    """How images become the input of a model: one of `PREPROCESSES`, and (height, width); None for the model's size."""

    kind: str = PREPROCESSES[0]
    size: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> "Preprocess":
        """Parse ``imagenet``, ``imagenet@224`` or ``imagenet@224x320``. Raises `SchemaError`."""
        kind, at, size = text.partition("@")
        found = _SIZE.fullmatch(size)
        if kind not in PREPROCESSES or bool(at) != bool(found):
            raise SchemaError(
                f"Wanted {', '.join(PREPROCESSES[:-1])} or {PREPROCESSES[-1]} for --onnx-preprocess, with a size if "
                f"the model has none (imagenet@224, imagenet@224x320). Found: {text!r}"
            )
        return cls(kind, (int(found[1]), int(found[2] or found[1])) if found else None)

    def __str__(self) -> str:
        return self.kind if self.size is None else "{}@{}x{}".format(self.kind, *self.size)


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of imagestrata."""

    name: str

    def __str__(self) -> str:
        return f"builtin:{self.name}"


@dataclass(frozen=True, slots=True)
class Python:
    """A user's function, in a module that can be imported."""

    module: str
    function: str

    def __str__(self) -> str:
        return f"python:{self.module}:{self.function}"


@dataclass(frozen=True, slots=True)
class Onnx:
    """A model, and how images become its input."""

    preprocess: Preprocess
    file: str

    def __str__(self) -> str:
        return f"onnx:{self.preprocess}:{self.file}"


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression in Spark SQL over the metadata and over fields of other views."""

    expression: str

    def __str__(self) -> str:
        return f"{SQL}{self.expression}"


@dataclass(frozen=True, slots=True)
class Labels:
    """A label file, by its name without folders."""

    file: str

    def __str__(self) -> str:
        return f"labels:{self.file}"


FeatureSource = Builtin | Python | Onnx | Sql | Labels


def parse_source(text: str) -> FeatureSource:
    """Parse a stored text: the inverse of ``str``. Raises `SchemaError`. Also parses ``MODULE:FUNCTION`` and
    ``onnx:FILE``, as people write them in files of definitions: registries may have the former.
    """
    kind, _, rest = text.partition(":")
    first, _, second = rest.partition(":")
    match kind:
        case "builtin" if rest:
            return Builtin(rest)
        case "python" if first and second:
            return Python(first, second)
        case "onnx" if rest:
            return Onnx(Preprocess.parse(first), second) if second else Onnx(Preprocess(), rest)
        case "sql" if rest:
            return Sql(rest)
        case "labels" if rest:
            return Labels(rest)
        case _ if _is_function(kind, rest):
            return Python(kind, rest)
    raise SchemaError(
        "Wanted the source of a feature view: builtin:NAME, python:MODULE:FUNCTION, onnx:PREPROCESS:FILE, "
        f"sql:EXPRESSION or labels:FILE. Found: {text!r}"
    )


def parse_typed(text: str, *, preprocess: Preprocess) -> Python | Onnx | Sql:
    """Parse a source as users write it: ``MODULE:FUNCTION``, ``onnx:FILE`` (for which ``preprocess`` says how images
    become its input) or ``sql:EXPRESSION``. Raises `SchemaError`.
    """
    kind, _, rest = text.partition(":")
    match kind:
        case "onnx" if rest.strip():
            return Onnx(preprocess, rest)
        case "sql" if rest.strip():
            return Sql(rest.strip())
        case _ if _is_function(kind, rest):
            return Python(kind, rest)
    raise SchemaError(f"Wanted MODULE:FUNCTION, onnx:FILE or sql:EXPRESSION. Found: {text!r}")


def typed(source: FeatureSource) -> str:
    """A source as users write it."""
    match source:
        case Python(module, function):
            return f"{module}:{function}"
        case Onnx(_, file):
            return f"onnx:{file}"
        case Builtin(name) | Labels(name):
            return name
        case Sql():
            return str(source)


def _is_function(module: str, name: str) -> bool:
    return name.isidentifier() and all(map(str.isidentifier, module.split(".")))
