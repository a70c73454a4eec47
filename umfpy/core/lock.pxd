"""A one-byte lock for critical sections of a few dozen nanoseconds.

Uncontended it costs one atomic exchange and one store.  A holder never calls Python or a driver,
so that a waiter spins briefly and then yields its processor.
"""

from libc.stdint cimport uint8_t

cdef extern from "sched.h" nogil:
    int sched_yield() noexcept

cdef extern from * nogil:
    # Builtins of gcc and clang; the memory orders are their constants.
    bint _exchange "__atomic_test_and_set"(void* flag, int order) noexcept
    void _clear "__atomic_clear"(void* flag, int order) noexcept
    uint8_t _load "__atomic_load_n"(const uint8_t* flag, int order) noexcept
    const int ACQUIRE "__ATOMIC_ACQUIRE"
    const int RELEASE "__ATOMIC_RELEASE"
    const int RELAXED "__ATOMIC_RELAXED"

cdef enum:
    SPINS = 64  # a holder is gone after some 50 ns; more spinning only starves it of a core

ctypedef uint8_t Lock


cdef inline bint lock_try(Lock* lock) noexcept nogil:
    """Take the lock if it is free."""
    return not _exchange(lock, ACQUIRE)


cdef inline void lock_watch(Lock* lock) noexcept nogil:
    """Wait until the lock looks free, without taking it."""
    cdef int spins = 0
    while _load(lock, RELAXED):
        spins += 1
        if spins > SPINS:
            sched_yield()


cdef inline void lock_acquire(Lock* lock) noexcept nogil:
    """Take the lock.  Not to be called while holding the GIL: see `lock_enter`."""
    while not lock_try(lock):
        lock_watch(lock)


cdef inline void lock_enter(Lock* lock) noexcept:
    """Take the lock while holding the GIL.

    The GIL is let go while somebody else has the lock, and taken back before the lock is: a
    thread with the lock never waits for the GIL, and one with the GIL never waits for the lock.
    """
    while not lock_try(lock):
        with nogil:
            lock_watch(lock)


cdef inline void lock_release(Lock* lock) noexcept nogil:
    _clear(lock, RELEASE)
