# SPDX-License-Identifier: GPL-3.0-or-later
"""What hostctl starts: this directory, as a program."""

from __future__ import annotations

import sys

from hosts import cli

sys.exit(cli.main(sys.argv[1:]))
