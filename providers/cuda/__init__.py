"""Memory of the CUDA driver."""

from umfpy.providers.cuda.pooled import CudaAsyncProvider
from umfpy.providers.cuda.provider import CudaProvider
from umfpy.providers.cuda.vmm import CudaVmmProvider

__all__ = ["CudaAsyncProvider", "CudaProvider", "CudaVmmProvider"]
