# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine must know of a daemon to replace it.

Rules:
- Nothing in this package knows the name of a product; every function takes a Product.
- Paths are absolute strings, joined with "/"; this package never touches them.
- A slot is a file named by its slot beside the links (node.md, section 2), or a link of that name to a tree
  (products.md, section 3).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

SLOTS = ("a", "b")

DEFAULT_TRIAL_LENGTH_S = 120
MIN_TRIAL_LENGTH_S = 5
MAX_TRIAL_LENGTH_S = 3600


class Policy(NamedTuple):
    """Which releases root's configuration lets this product go to, beyond whom it trusts (releases.md, section 3)."""

    enabled: bool = True
    allowed_channels: Tuple[str, ...] = ("stable",)
    min_version: Optional[str] = None
    rollback_grace: int = 1
    """Minor versions below the running one that may be taken."""
    same_major: bool = False
    strict_sequence: bool = False


class Source(NamedTuple):
    """Where releases are fetched by version and channel alone (products.md, section 8)."""

    url: str
    """The base of one release, with `{version}` in it."""
    hosts: Tuple[str, ...]
    redirect_hosts: Tuple[str, ...] = ()


class Probe(NamedTuple):
    """One thing to look at on the host; which fields count depends on `kind` (products.md, section 5)."""

    name: str
    kind: str
    required: bool = True
    timeout_s: int = 5
    command: Tuple[str, ...] = ()
    user: str = ""
    url: str = ""
    status: Tuple[Tuple[int, int], ...] = ((200, 200),)
    body: str = ""
    ca_file: str = ""
    address: Tuple[str, int] = ("", 0)
    unit: str = ""
    for_s: int = 0
    path: str = ""
    fresh_s: int = 0
    pattern: str = ""


class Hook(NamedTuple):
    """A command of the operator's at a fixed place of an update (products.md, sections 6 and 7)."""

    name: str
    command: Tuple[str, ...]
    timeout_s: int = 60
    user: str = "root"
    always: bool = False
    """A snapshot is made for every trial, not only where the epoch changes."""


class Part(NamedTuple):
    """A file of the tree that another place of the host links to (products.md, section 4)."""

    name: str
    source: str
    """Its path in the tree."""
    path: str
    unit: bool = False
    """It is a unit file, so systemd must read its files anew when it changes."""


class Window(NamedTuple):
    """When updates may begin: days 0 (Monday) to 6, minutes of the day; `opens` is not before `closes` over midnight."""

    name: str
    days: Tuple[int, ...]
    opens: int
    closes: int
    zone: str


class Freeze(NamedTuple):
    """From when to when no update begins; ISO dates, both included."""

    name: str
    begins: str
    ends: str
    zone: str
    why: str = ""


class Confirming(NamedTuple):
    """How probes decide: seconds between rounds, consecutive passes, consecutive failures."""

    interval_s: int = 2
    passes: int = 3
    failures: int = 3


AB, VERSIONS = "ab", "versions"
TREES = "versions"
"""The directory of the trees, beside the links."""
PINS, DIGEST = "pins", "digest"
CURRENT, PREVIOUS = "current", "previous"


class Product(NamedTuple):
    """One daemon under our care, as root's configuration describes it (DESIGN 1)."""

    name: str
    unit: str
    entrypoint: str
    slots_dir: str
    pins: Tuple[str, ...] = ()
    threshold: int = 1
    base_floor: int = 0
    """The highest of the configured and the embedded sequence: the floor before any record."""
    least_floor: int = 0
    """The configured sequence, below which no permit takes the floor (I3)."""
    confirm_sources: Tuple[str, ...] = ("controller",)
    trial_length_s: int = DEFAULT_TRIAL_LENGTH_S
    settle_s: int = 10
    max_boots: int = 3
    smoke_argv: Tuple[str, ...] = ()
    """Arguments of the smoke test; empty: none is run."""
    config_argv: Tuple[str, ...] = ()
    """Arguments with which a staged release judges this host's configuration; empty: it is not asked."""
    adopt: bool = False
    status_socket: str = ""
    """A socket that answers with the daemon's own digest, or "" when it has none (I11)."""
    helper_unit: str = ""
    """The unit of its helper, which starts `<slots>/helper` and is part of its trials; "" when it has none."""
    helper_socket: str = ""
    """Where that helper answers with its own digest."""
    policy: Policy = Policy()
    mirrors: Tuple[str, ...] = ()
    """Bases where else a release's files are: `<base>/<product>/<version>/<file>`."""
    layout: str = AB
    program: str = ""
    """With trees, the program's name at the top of one."""
    keep: int = 3
    """With trees, how many are kept besides the live ones."""
    platform: str = ""
    """Of the artifact, as `linux-amd64`; "" is the host's own."""
    variant: str = ""
    user: str = ""
    """Who runs smoke tests and probes; "" is the unit's own account."""
    trust: str = PINS
    floor: str = CURRENT
    """Which release the floor rises to: the one confirmed, or the one confirmed before it."""
    manual: bool = False
    max_starts: int = 0
    health_window_s: int = 0
    smoke_expect: str = "{version}"
    config_check: Tuple[str, ...] = ()
    """Arguments with which the new program judges the daemon's configuration: another status than 0 refuses."""
    reload: bool = False
    """Going forward is a reload: the daemon replaces its own main process."""
    drain_s: int = 0
    confirming: Confirming = Confirming()
    source: Optional[Source] = None
    probes: Tuple[Probe, ...] = ()
    hooks: Tuple[Hook, ...] = ()
    parts: Tuple[Part, ...] = ()
    windows: Tuple[Window, ...] = ()
    freezes: Tuple[Freeze, ...] = ()

    @property
    def has_unit_part(self) -> bool:
        """Whether a unit file comes with a release, so that systemd must read its files anew whenever `current` has moved."""
        return any(part.unit for part in self.parts)

    def hook(self, name: str) -> Optional[Hook]:
        """The hook of that name, if there is one."""
        return next((hook for hook in self.hooks if hook.name == name), None)

    def program_path(self, slot: str) -> str:
        """The program of a slot, or of a link that names one: the slot itself, or the program in its tree."""
        path = self.path(slot)
        return path + "/" + self.program if self.layout == VERSIONS else path

    def tree(self, version: str) -> str:
        """The directory of a release's tree."""
        return self.path(tree_of(version))

    def path(self, name: str) -> str:
        """The path of a link, slot or record in the slots directory."""
        return self.slots_dir + "/" + name


def tree_of(version: str) -> str:
    """What a slot's link to the tree of that release names."""
    return TREES + "/" + version


def other_slot(slot: str) -> str:
    """The slot that `slot` is not."""
    return "b" if slot == "a" else "a"
