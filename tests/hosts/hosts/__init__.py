# SPDX-License-Identifier: GPL-3.0-or-later
"""Real systemd test hosts for tests, demos and molecule: see README.md one directory up.

import hosts

with hosts.Run() as run:
    web = run.up("web1", "bookworm")
    web.run("systemctl is-system-running")
    web.cut()
    web.boot()
"""

from hosts.errors import CommandFailed, CommandTimeout, HostError
from hosts.fleet import Run
from hosts.host import Host
from hosts.settings import SUITES

__all__ = ["SUITES", "CommandFailed", "CommandTimeout", "Host", "HostError", "Run"]
