"""The embedded services, and the set-up that installs what they need: Java, jars and Spark's configuration.

Modules that run before the virtual environment exists (`environment`, `java`, `jars`, `sparkconf`, `steps`) use only
the standard library.

Exceptions
    DevstackError         base of all; the message is one line for the user
      SetupError          the environment cannot be made (no Python 3.11, no venv, a package or jar that fails)
      JavaError           no Java 17 was found
      NodeError           a server cannot be started, stopped or used
        PortError         another process uses the port
"""

from schemas.errors import ImagestrataError

__all__ = ["DevstackError", "JavaError", "NodeError", "PortError", "SetupError"]


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
