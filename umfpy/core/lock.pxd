"""A lock for critical sections of a few dozen nanoseconds.

Uncontended it costs one atomic exchange and one store.  A holder never calls Python or a driver,
so that a waiter spins briefly and then yields its processor.

As long as every caller holds the GIL, that is lock enough, and this one costs nothing; from
`lock_share` on, which whoever lets callers in without the GIL calls first, it is taken for real.
That is sound because nobody lets the GIL go inside a section.  (These modules do not announce
support for an interpreter without a GIL, so that one brings its GIL back for them.)
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

cdef struct Lock:
    uint8_t held
    bint shared  # with callers that do not hold the GIL


cdef inline void lock_share(Lock* lock) noexcept:
    """From now on callers may come without the GIL.  To be called with it."""
    lock.shared = True


cdef inline bint lock_try(Lock* lock) noexcept nogil:
    """Take the lock if it is free."""
    return not _exchange(&lock.held, ACQUIRE)


cdef inline void lock_watch(Lock* lock) noexcept nogil:
    """Wait until the lock looks free, without taking it."""
    cdef int spins = 0
    while _load(&lock.held, RELAXED):
        spins += 1
        if spins > SPINS:
            sched_yield()


cdef inline void lock_acquire(Lock* lock) noexcept nogil:
    """Take a shared lock without holding the GIL; with it, see `lock_enter`."""
    while not lock_try(lock):
        lock_watch(lock)


cdef inline void lock_enter(Lock* lock) noexcept:
    """Take the lock while holding the GIL.

    The GIL is let go while somebody else has the lock, and taken back before the lock is: a
    thread with the lock never waits for the GIL, and one with the GIL never waits for the lock.
    """
    if not lock.shared:
        return
    while not lock_try(lock):
        with nogil:
            lock_watch(lock)


cdef inline void lock_enter_with_gil(Lock* lock) noexcept:
    """Take the lock without ever letting the GIL go: for what the GIL is the lock of.

    It cannot be for ever: whoever has the lock holds no GIL, or it would be this thread's, and
    asks for none before it lets the lock go.
    """
    if lock.shared:
        lock_acquire(lock)


cdef inline void lock_release(Lock* lock) noexcept nogil:
    if lock.shared:
        _clear(&lock.held, RELEASE)
