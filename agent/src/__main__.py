# SPDX-License-Identifier: GPL-3.0-or-later
"""Start of the agent's archive.

The first statement holds the archive open: the path that systemd starts is a link which an update moves, and a module
imported late must come from the file that this process was started from, never from the newer one.
"""

import os
import sys

sys.path[0] = "/proc/self/fd/%d" % os.open(sys.path[0], os.O_RDONLY)  # keep this first

import zipimport  # noqa: E402 (only after the line above)


class Importer(zipimport.zipimporter):
    """As Python's own, which compiles each module to learn its file name and once more to run it (ADR 0008)."""

    def get_filename(self, fullname: str) -> str:
        """The name for tracebacks, from the directory alone."""
        ending = "/__init__.py" if self.is_package(fullname) else ".py"
        return "%s/%s%s%s" % (self.archive, self.prefix, fullname.rpartition(".")[2], ending)


sys.path_hooks = [Importer if hook is zipimport.zipimporter else hook for hook in sys.path_hooks]

from slotward import cli  # noqa: E402 (with the importer above)

sys.exit(cli.main(sys.argv[1:]))
