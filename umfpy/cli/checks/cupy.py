"""CuPy, whose arrays can live in umfpy's pools."""

from __future__ import annotations

from umfpy.cli.checks.finding import Finding, State, installed_version

#: The distributions that hold the package ``cupy``.
_DISTRIBUTIONS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")


def check() -> Finding:
    """See which CuPy is installed, without importing it: that takes long and may need a GPU."""
    versions = {name: installed_version(name) for name in _DISTRIBUTIONS}
    found = {name: version for name, version in versions.items() if version}
    if not found:
        return Finding(
            "CuPy", State.ABSENT, "not installed", advice='pip install "umfpy[cupy-cuda13x]"'
        )
    names = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        return Finding(
            "CuPy",
            State.PROBLEM,
            f"{names} are installed, and overwrite each other's files",
            dict(found),
            f"pip uninstall -y {' '.join(found)}, then install the one that fits the driver",
        )
    return Finding("CuPy", State.OK, names, dict(found))
