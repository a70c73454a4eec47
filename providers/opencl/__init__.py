"""Memory of OpenCL devices: unified shared memory, shared virtual memory, or buffers."""

from umfpy.providers.opencl.provider import OpenCLProvider

__all__ = ["OpenCLProvider"]
