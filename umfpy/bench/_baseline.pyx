# cython: language_level=3
"""The cheapest object that an allocation could be: a compiled class with nothing in it."""


cdef class Empty:
    """Nothing; made and dropped to see what that alone costs."""
