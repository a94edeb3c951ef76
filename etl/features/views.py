"""The feature views of a keyspace: built-in ones, registered ones, and new ones, which are registered."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from etl.cassandra.control import Control
from etl.cassandra.registry import registered_views
from etl.errors import ConflictError, FunctionError
from etl.features.computing import builtin
from etl.features.computing.functions import digest_of, load
from etl.features.computing.models import digest_of_model
from etl.features.plan import FeatureRequest
from schemas.feature_sources import Builtin, FeatureSource, Onnx, Python, typed
from schemas.features import FeatureView

Probe = Callable[[FeatureView], dict[str, str]]


def find_view(
    control: Control, request: FeatureRequest, *, keyspace: str, probe: Probe, ttl: int | None = None
) -> FeatureView:
    """The definition of a requested view, registered or not yet; writes nothing. ``probe`` returns the fields of a new
    view, from the values that its function returns, and ``ttl`` is the seconds after which its values are too old.
    Raises `FunctionError` if there is no such view or function, and `ConflictError` if the view is registered with
    another function, or its function has changed since.
    """
    name, version = request.view.name, request.view.version
    known = registered_views(control, keyspace=keyspace, name=name)
    if name in builtin.VIEWS:
        return _builtin(request, ttl=ttl)
    if request.source is None:
        return _registered(request, known=known, everything=registered_views(control, keyspace=keyspace), ttl=ttl)
    source = request.source
    if isinstance(source, Onnx):
        source = replace(source, file=os.path.abspath(source.file))
    digest = digest_of_source(source)
    newest = known[0].version if known else 0
    current = next((view for view in known if view.version == (version or newest)), None)
    if current is not None:
        _check_same(current, source=source, digest=digest, newest=newest, ttl=ttl)
        return current
    if version not in (None, newest + 1):
        raise ConflictError(f"Wanted {name}@v{newest + 1}, the next version. Found: {request.view}")
    draft = FeatureView(name=name, version=newest + 1, fields={name: "blob"}, source=source, digest=digest, ttl=ttl)
    return replace(draft, fields=probe(draft))


def digest_of_source(source: FeatureSource) -> str:
    """The SHA-256 of what makes a view's values: a module or a model, and the decoder. Raises `FunctionError`."""
    match source:
        case Python():
            return digest_of(source)
        case Onnx():
            return digest_of_model(source.file)
    raise FunctionError(f"Wanted a function or a model that this version can read. Found: {source}")


def _builtin(request: FeatureRequest, *, ttl: int | None) -> FeatureView:
    view = builtin.view_of(request.view.name)
    if request.source is not None:
        raise ConflictError(f"Wanted another name for {request.source}. Found: {view.name}, which is built in")
    if ttl is not None:
        raise ConflictError(
            f"Wanted --ttl only with views of your own. Found: {view.name}, which depends only on an image's bytes"
        )
    if request.view.version not in (None, view.version):
        raise FunctionError(f"Wanted {view.title}, which this version computes. Found: {request.view}")
    load(Builtin(view.name))
    return view


def _registered(
    request: FeatureRequest, *, known: Sequence[FeatureView], everything: Sequence[FeatureView], ttl: int | None
) -> FeatureView:
    for view in known:
        if request.view.version in (None, view.version):
            digest = view.digest if view.is_on_demand else digest_of_source(view.source)
            _check_same(view, source=view.source, digest=digest, newest=known[0].version, ttl=ttl)
            return view
    names = ", ".join(view.title for view in everything) or "none"
    raise FunctionError(
        f"Wanted a feature view that is built in ({', '.join(builtin.VIEWS)}) or registered ({names}). "
        f"Found: {request.view}. Define a new one: {request.view.name}=MODULE:FUNCTION, onnx:FILE or sql:EXPRESSION"
    )


def _check_same(view: FeatureView, *, source: FeatureSource, digest: str, newest: int, ttl: int | None) -> None:
    """Raise `ConflictError` unless a registered view has this source and digest, and this ttl if one is given."""
    if ttl not in (None, view.ttl):
        own = "no ttl" if view.ttl is None else f"a ttl of {view.ttl:,} s"
        raise ConflictError(f"Wanted {view.title} as it was registered, with {own}. Found: --ttl of {ttl:,} s.")
    is_same_source = _is_same(view.source, source)
    if is_same_source and view.digest == digest:
        return
    found = str(source)
    if is_same_source:
        what = "model" if isinstance(source, Onnx) else "module"
        digests = f"({digest[:12]} instead of {view.digest[:12]})"
        found = f"the {what} has changed since then {digests}, or how images are decoded"
    raise ConflictError(
        f"Wanted {view.title} as it was registered, from {view.source}. Found: {found}. Values of both would be mixed. "
        f"Make it a new version: {view.name}@v{newest + 1}={typed(source)}"
    )


def _is_same(one: FeatureSource, other: FeatureSource) -> bool:
    """Whether two sources are the same, wherever the file of a model is."""
    if isinstance(one, Onnx) and isinstance(other, Onnx):
        return one.preprocess == other.preprocess
    return one == other
