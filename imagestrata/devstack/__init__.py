"""The embedded, real services, and the set-up that brings what they need: Java, jars, Spark's configuration, Cassandra.

Modules that run before the virtual environment exists (`environment`, `java`, `jars`, `sparkconf`, `steps`) use the
standard library alone.

Exceptions
    DevstackError         base of all; its message is one line to be shown to the user
      SetupError          the environment cannot be made (no Python 3.11, no venv, a package or a jar that fails)
      JavaError           no Java 17 was found
      NodeError           a server cannot be started, stopped or used
        PortError         a port is held by a process that is not ours
"""

__all__ = ["DevstackError", "JavaError", "NodeError", "PortError", "SetupError"]


class DevstackError(Exception):
    """Base of what devstack raises; the message says what was wanted, what was found and what to do."""


class SetupError(DevstackError):
    """The environment cannot be made."""


class JavaError(DevstackError):
    """No Java 17 was found."""


class NodeError(DevstackError):
    """A server cannot be started, stopped or used."""


class PortError(NodeError):
    """A port is held by a process that is not ours."""
