"""``python -m umfpy`` is the command ``umfpy``."""

from umfpy.cli import main

main(prog_name="umfpy")
