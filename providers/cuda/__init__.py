"""Memory of the CUDA driver."""

from umfpy.providers.cuda.provider import CudaProvider

__all__ = ["CudaProvider"]
