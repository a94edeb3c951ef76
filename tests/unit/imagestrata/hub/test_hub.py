"""The messages and names of the client package."""

import inspect

from imagestrata import hub


def test_dunder_all_is_complete_and_everything_else_is_private() -> None:
    public = {name for name, value in vars(hub).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(hub.__all__)


def test_the_docstring_lists_all_errors() -> None:
    for name in hub.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(hub, name), hub.HubError)
            assert name in (hub.__doc__ or "")
    assert issubclass(hub.OptionError, ValueError)
