"""Memory of the host: anonymous, shared, in a file, or somebody else's buffer."""

from umfpy.providers.host.file import FileProvider
from umfpy.providers.host.fixed import FixedProvider
from umfpy.providers.host.provider import HostProvider

__all__ = ["FileProvider", "FixedProvider", "HostProvider"]
