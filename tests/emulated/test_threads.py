"""Many threads at once."""

import random
import threading


def test_allocations_of_many_threads_never_overlap(cu, emu):
    context = cu("cuCtxGetCurrent")
    failures = []

    def work(seed):
        noise, mine = random.Random(seed), []
        cu("cuCtxSetCurrent", context)
        for step in range(400):
            if mine and noise.random() < 0.5:
                address, size = mine.pop(noise.randrange(len(mine)))
                if cu.read(address, size) != bytes([seed]) * size:
                    failures.append((seed, step))
                cu("cuMemFree", address)
            else:
                size = noise.randrange(1, 5000)
                address = cu.alloc(size)
                cu("cuMemsetD8", address, seed, size)
                mine.append((address, size))
        for address, _ in mine:
            cu("cuMemFree", address)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert emu.calls["cuMemAlloc_v2"] == emu.calls["cuMemFree_v2"]
    assert cu("cuMemGetInfo") == (1 << 30, 1 << 30)


def test_callbacks_may_call_from_another_thread(cu):
    """The lock is not held while a host function runs."""
    import ctypes

    seen = []

    def function(_):
        thread = threading.Thread(target=lambda: seen.append(int(cu("cuDeviceGetCount"))))
        thread.start()
        thread.join(timeout=30)

    kept = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    address = ctypes.cast(kept, ctypes.c_void_p).value
    cu("cuLaunchHostFunc", 0, cu.driver.CUhostFn(address), 0)
    assert seen == [2]
