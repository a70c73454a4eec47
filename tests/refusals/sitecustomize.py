"""Loaded by every Python that a test starts: its driver calls are watched as the test's own are."""

import os
from pathlib import Path

import driver_watch

if driver_watch.VARIABLE in os.environ:
    driver_watch.Log(Path(os.environ[driver_watch.VARIABLE])).install()
