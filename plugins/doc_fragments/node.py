# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of every module that asks the node agent."""

from __future__ import annotations


class ModuleDocFragment:
    """How to reach the agent on the host; ``PRODUCT`` is which product is meant."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The agent's program on the host.
    type: path
    default: /usr/local/bin/slotward
  config:
    description:
      - The agent's configuration on the host.
    type: path
    default: /etc/slotward/config.toml
requirements:
  - The node agent on the host; the role P(slotward.fleet.agent#role) installs it.
  - Root on the host (C(become)) for everything but reading.
"""

    PRODUCT = r"""
options:
  product:
    description:
      - The product under the agent's care. The agent itself is the product V(slotward).
    type: str
    default: slotward
"""
