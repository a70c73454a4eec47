"""The back ends, imported as ``umfpy.providers``."""
