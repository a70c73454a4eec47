"""From the name in a handle to the provider that opens it: by a fixed table, never by import."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict

from umfpy.errors import InvalidArgument, IpcError
from umfpy.provider import Provider

#: Where the providers of umfpy are; loaded when a handle first names one.
_BUILT_IN = {
    "cuda": ("umfpy.providers.cuda", "CudaProvider"),
    "cuda_async": ("umfpy.providers.cuda", "CudaAsyncProvider"),
    "cuda_vmm": ("umfpy.providers.cuda", "CudaVmmProvider"),
    "file": ("umfpy.providers.host", "FileProvider"),
    "host": ("umfpy.providers.host", "HostProvider"),
    "level_zero": ("umfpy.providers.level_zero", "LevelZeroProvider"),
    "level_zero_vmm": ("umfpy.providers.level_zero", "LevelZeroVmmProvider"),
}

_registered: dict[str, type[Provider]] = {}


def register_provider(name: str, cls: type[Provider]) -> None:
    """Let handles that name `name` be opened with `cls`, by its `Provider.for_ipc`.

    Replaces what the name meant before, also if it was one of umfpy's own.  Raises
    InvalidArgument if `cls` is no Provider, or has another name.
    """
    if not (isinstance(cls, type) and issubclass(cls, Provider)):
        raise InvalidArgument(f"a provider class is needed, not {cls!r}")
    if not name or cls.name != name:
        raise InvalidArgument(
            f"{cls.__name__} is called {cls.name!r}, and its handles name it so, not {name!r}"
        )
    _registered[name] = cls


def provider_class(name: str) -> type[Provider]:
    """Return the class for a name out of a handle; IpcError if this process has none."""
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        raise IpcError(
            f"this IPC handle is of provider {name!r}, which this process does not know; pass "
            "open_ipc(handle, provider=...) or call umfpy.ipc.register_provider first"
        )
    module, attribute = _BUILT_IN[name]
    try:
        cls: type[Provider] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise IpcError(f"this umfpy has no provider {name!r}: {error}") from error
    return cls


class Importers:
    """The providers that open handles in this process, one for each device.

    The `KEPT` last used are kept, because to set one up again can be slow: a CUDA context.  One
    that has roots open lives on with them.
    """

    KEPT = 32

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._providers: OrderedDict[tuple[type[Provider], str], Provider] = OrderedDict()

    def find(self, name: str, scope: str) -> Provider:
        """Return the provider for handles of that name and scope.

        Raises
        ------
        IpcError
            This process does not know the name, or does not see the device.
        DriverUnavailable, NotSupported
            The driver is missing, or cannot open memory of other processes.
        """
        cls = provider_class(name)
        # One at a time: of two for the same device each would open the same roots.
        with self._lock:
            key = cls, scope
            provider = self._providers.get(key) or cls.for_ipc(scope)
            self._providers[key] = provider
            self._providers.move_to_end(key)
            if len(self._providers) > self.KEPT:
                self._providers.popitem(last=False)
        return provider

    def clear(self) -> None:
        """Forget the providers; those with roots open stay until these are closed."""
        with self._lock:
            dropped, self._providers = self._providers, OrderedDict()
        # Outside of the lock: to let go of a driver may take a while.
        dropped.clear()
