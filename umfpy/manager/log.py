"""Where a manager says what happens."""

from __future__ import annotations

import logging

LOG = logging.getLogger("umfpy.manager")
