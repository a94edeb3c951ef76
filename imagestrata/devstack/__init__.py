"""The embedded services, and the set-up that installs what they need: Java, jars and Spark's configuration.

Modules that run before the virtual environment exists (`environment`, `java`, `jars`, `sparkconf`, `steps`) use only
the standard library, and of ours only modules of `formats` and `schemas` that do.

Exceptions
    DevstackError         base of all; the message is one line for the user
      SetupError          the environment cannot be made (no venv, a package or jar that fails)
      JavaError           no Java 17 was found
      NodeError           a server cannot be started, stopped or used
        PortError         another process uses the port
"""

from schemas.errors import ImagestrataError

__all__ = ["PYTHONS", "DevstackError", "JavaError", "NodeError", "PortError", "SetupError"]

PYTHONS = ((3, 11), (3, 12), (3, 13))
"""The versions of Python in which a checkout works."""


class DevstackError(ImagestrataError):
    """Base of all errors of devstack; the message says what was wanted, what was found and what to do."""


class SetupError(DevstackError):
    """The environment cannot be made."""


class JavaError(DevstackError):
    """No Java 17 was found."""


class NodeError(DevstackError):
    """A server cannot be started, stopped or used."""


class PortError(NodeError):
    """Another process uses the port."""
