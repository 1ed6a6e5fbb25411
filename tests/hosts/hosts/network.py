# SPDX-License-Identifier: GPL-3.0-or-later
"""The private link of a host: a network namespace, a veth pair and one address for each end.

- Host number n has the network <prefix>.n.0/30; the controller's end is .1, the host's end is .2.
- The namespace belongs to us, not to systemd-nspawn, so the link outlives a reboot that the host does by itself.
- While a link is cut or a host is down, an unreachable route keeps what is sent to it off the machine's default route.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Collection

from hosts import errors, process, settings

NUMBERS = range(1, 255)
MACHINE = re.compile(r"^(?:ve-)?sw(\d{1,3})$")


@dataclasses.dataclass(frozen=True)
class Link:
    """The names and addresses that follow from a host's number."""

    number: int

    @property
    def machine(self) -> str:
        """The name of the container, its namespace and its control group."""
        return f"sw{self.number}"

    @property
    def interface(self) -> str:
        """The controller's end."""
        return f"ve-{self.machine}"

    @property
    def subnet(self) -> str:
        """The network of both ends."""
        return f"{settings.network()}.{self.number}.0/30"

    @property
    def controller(self) -> str:
        """The address of the controller's end."""
        return f"{settings.network()}.{self.number}.1"

    @property
    def guest(self) -> str:
        """The address of the host's end."""
        return f"{settings.network()}.{self.number}.2"


def lowest_free(taken: Collection[int]) -> int:
    """Choose the number of the next host."""
    for number in NUMBERS:
        if number not in taken:
            return number
    raise errors.HostError("all 254 host numbers are in use: run 'hostctl clean', then 'hostctl down --all'")


def numbers_of(names: Collection[str]) -> set[int]:
    """The host numbers that interface and namespace names stand for; other names are nobody's."""
    return {int(match[1]) for match in map(MACHINE.match, names) if match}


def present() -> set[int]:
    """The numbers whose link, namespace or address exists on this machine, whoever made it."""
    links = json.loads(process.tool("ip", "-json", "addr", "show") or "[]")
    spaces = json.loads(process.tool("ip", "-json", "netns", "list") or "[]")
    taken = numbers_of([link["ifname"] for link in links] + [space["name"] for space in spaces])
    ours = settings.network() + "."
    for address in (entry.get("local", "") for link in links for entry in link["addr_info"]):
        if address.startswith(ours):
            taken.add(int(address.split(".")[2]))
    return taken


def create(link: Link) -> None:
    """Make the link anew, with both ends up."""
    destroy(link)
    inside = ("ip", "-n", link.machine)
    process.tool("ip", "netns", "add", link.machine)
    process.tool("ip", "link", "add", link.interface, "type", "veth", "peer", "name", "host0", "netns", link.machine)
    process.tool(*inside, "addr", "add", f"{link.guest}/30", "dev", "host0")
    process.tool(*inside, "link", "set", "lo", "up")
    process.tool(*inside, "link", "set", "host0", "up")
    process.tool("ip", "addr", "add", f"{link.controller}/30", "dev", link.interface)
    process.tool("ip", "link", "set", link.interface, "up")


def destroy(link: Link) -> None:
    """Remove the link, whatever is left of it."""
    for command in (
        ("ip", "link", "del", link.interface),
        ("ip", "netns", "del", link.machine),
        ("ip", "route", "del", "unreachable", link.subnet),
    ):
        with contextlib.suppress(errors.HostError):
            process.tool(*command)


def remove(link: Link) -> None:
    """Remove the link of a host that is down, and answer for it that it cannot be reached."""
    destroy(link)
    process.tool("ip", "route", "replace", "unreachable", link.subnet)


def cut(link: Link) -> None:
    """Pull the cable: the host loses its carrier, the controller its route."""
    process.tool("ip", "route", "replace", "unreachable", link.subnet)
    process.tool("ip", "link", "set", link.interface, "down")


def restore(link: Link) -> None:
    """Plug the cable in again."""
    process.tool("ip", "link", "set", link.interface, "up")
    with contextlib.suppress(errors.HostError):
        process.tool("ip", "route", "del", "unreachable", link.subnet)
