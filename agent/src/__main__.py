# SPDX-License-Identifier: GPL-3.0-or-later
"""Start of the agent's archive.

The first statement holds the archive open: the path that systemd starts is a link which an update moves, and a module
imported late must come from the file that this process was started from, never from the newer one.
"""

import os
import sys

sys.path[0] = "/proc/self/fd/%d" % os.open(sys.path[0], os.O_RDONLY)  # keep this first

from slotward import cli  # noqa: E402 (only after the line above)

sys.exit(cli.main(sys.argv[1:]))
