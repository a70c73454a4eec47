"""Memory of the host: anonymous, shared, in a file, or somebody else's buffer."""

from umfpy.providers.host.provider import HostProvider

__all__ = ["HostProvider"]
