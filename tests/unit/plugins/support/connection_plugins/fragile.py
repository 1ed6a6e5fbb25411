# SPDX-License-Identifier: GPL-3.0-or-later
"""A local connection that is gone while the file `cut` in the host's directory says so."""

from __future__ import annotations

DOCUMENTATION = """
name: fragile
short_description: a local connection that can be cut
description: For tests.
version_added: 0.1.0
author: The Slotward maintainers
options:
  directory:
    description: The host's directory.
    type: str
    required: true
    vars:
      - name: fragile_directory
"""

import os
import time
from typing import Any, Tuple

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import local


class Connection(local.Connection):  # type: ignore[misc]  # ansible has no types
    """As local, until it is cut."""

    transport = "fragile"

    def _ask_for_life(self) -> None:
        path = os.path.join(self.get_option("directory"), "cut")
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                until = float(file.read())
            if time.time() < until:
                raise AnsibleConnectionFailure("the connection was cut by the test")
            os.unlink(path)

    def exec_command(self, *args: Any, **kwargs: Any) -> Tuple[int, bytes, bytes]:
        """Run, unless cut before; lose the answer, when cut meanwhile."""
        self._ask_for_life()
        answer: Tuple[int, bytes, bytes] = super().exec_command(*args, **kwargs)
        self._ask_for_life()
        return answer

    def reset(self) -> None:
        """Note that a new connection was asked for."""
        with open(os.path.join(self.get_option("directory"), "resets"), "a", encoding="ascii") as file:
            file.write("reset\n")
