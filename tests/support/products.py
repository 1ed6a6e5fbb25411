# SPDX-License-Identifier: GPL-3.0-or-later
"""A product on a test host: any daemon beside the agent, with releases that are made by the real commands.

- Everything is asked of `slotward --product NAME …` as an operator asks it; what is asserted comes from its answers, from systemd,
  or from the files that docs/design/products.md describes.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any, NamedTuple

from support import node as nodes
from support import releases

PRODUCTS = "/etc/slotward/products.d"
EXAMPLES = releases.ROOT / "examples"
NO_PINS = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


class Release(NamedTuple):
    """A published release of a product."""

    product: str
    version: str
    manifest: pathlib.Path
    artifact: pathlib.Path

    @property
    def sha256(self) -> str:
        """The artifact's digest."""
        return hashlib.sha256(self.artifact.read_bytes()).hexdigest()


def released(
    shop: releases.Workshop,
    product: str,
    version: str,
    sequence: int,
    program: pathlib.Path,
    more: tuple[str, ...] = (),
    signers: int | None = None,
    shelf: str = "",
) -> Release:
    """Sign a release of one file, a program, or an archive by its name; by as many keys as the threshold asks for.

    What has one version and other bytes elsewhere, as on another suite, lies on a shelf of its own.
    """
    base = shop.base / "shelves" / shelf if shelf else shop.base
    kind = ".tar.gz" if program.name.endswith(".tar.gz") else ""
    name = f"{product}_{version}_linux_{releases.ARCH}{kind}"
    directory = base / product / version
    made = Release(product, version, directory / "manifest.json", directory / name.removesuffix(kind))
    if made.manifest.exists():
        assert made.artifact.read_bytes() == program.read_bytes(), f"{product} {version} was made otherwise before"
        return made
    artifact = shop.directory / "programs" / shelf / product / version / name
    artifact.parent.mkdir(parents=True, exist_ok=True)
    artifact.write_bytes(program.read_bytes())
    argv = ["build", "--product", product, "--version", version, "--sequence", str(sequence), *more]
    for key in shop.keys:
        argv += ["--key", str(key.path.with_suffix(".pub.pem"))]
    shop.release_command(*argv, "--artifact", str(artifact), "--output", str(base))
    for key in shop.keys[: shop.threshold if signers is None else signers]:
        shop.release_command("sign", "--manifest", str(made.manifest), "--key", str(key.path), "--yes")
    return made


class Product:
    """One product on one host."""

    def __init__(self, node: nodes.Node, name: str, unit: str = "", slots: str = "") -> None:
        self.node = node
        self.name = name
        self.unit = unit or f"{name}.service"
        self.slots = slots or f"/opt/slotward/{name}"
        self.file = f"{PRODUCTS}/{name}.toml"

    # -- setting up ---------------------------------------------------------------------------------------------

    def describe(self, text: str) -> None:
        """Write the product's file."""
        self.node.sh(f"mkdir -p -m 0755 {PRODUCTS}")
        self.node.host.write(self.file, text, 0o644)

    def example(self, *changes: tuple[str, str]) -> None:
        """Write the file of examples/ with this run's pins, and with `changes`, each of which must be one."""
        text = (EXAMPLES / self.name / f"{self.name}.toml").read_text(encoding="utf-8")
        pins = (f'"{NO_PINS}"', f'"{self.node.shop.pins}"\nrelease_threshold = {self.node.shop.threshold}')
        for old, new in (pins, *changes):
            assert text.count(old) == 1, (old, text)
            text = text.replace(old, new)
        self.describe(text)

    def slotward(self, *words: str, timeout: float = 120) -> nodes.Answer:
        """Run a command of the agent for this product."""
        return self.node.command(["slotward", "--product", self.name, *words], timeout)

    def done(self, *words: str, timeout: float = 120) -> dict[str, Any]:
        """Run a command that must succeed; what it answered."""
        answer = self.slotward(*words, timeout=timeout)
        assert answer.exit == 0, (words, answer, self.story())
        return answer.json

    # -- updates ------------------------------------------------------------------------------------------------

    def target(self, release: Release, **fields: str) -> str:
        """Push the target of a release; its path on the host."""
        found = {"product": self.name, "version": release.version, "url": "https://releases.invalid/none"}
        found.update(sha256=release.sha256, signature=release.manifest.read_text(encoding="utf-8"))
        path = f"{nodes.BOX}/{self.name}-{release.version}.json"
        self.node.host.write(path, json.dumps({**found, **fields}))
        return path

    def begin(self, release: Release, *flags: str) -> nodes.Answer:
        """Upgrade with a pushed file, without waiting for the trial's end."""
        pushed = self.node.put(release.artifact)
        words = ("upgrade", "--target", self.target(release), "--src", pushed, "--no-wait", "--id", nodes.trial_id())
        return self.slotward(*words, *flags)

    def on_trial(self, release: Release, *flags: str) -> str:
        """Begin a trial, which must succeed; its id."""
        answer = self.begin(release, *flags)
        assert (answer.exit, answer.json["state"]) == (0, "trial"), (answer, self.story())
        return str(answer.json["trial"]["id"])

    def update(self) -> dict[str, Any]:
        """The product's state."""
        return self.done("update")

    def ends(self, within: float) -> dict[str, Any]:
        """Wait for a trial's end and all that follows it; the state then."""
        state: dict[str, Any] = {}

        def over() -> bool:
            if self.node.sh(f"ls {self.slots}/trial* 2>/dev/null", check=False):
                return False
            state.update(self.update())  # read once all is settled
            return state["trial"] is None

        self.node.waits(over, within, f"the trial of {self.name} has ended")
        return state

    def upgraded(self, release: Release, within: float = 60, *flags: str) -> dict[str, Any]:
        """Upgrade, which its probes must confirm; the state then."""
        self.on_trial(release, *flags)
        state = self.ends(within)
        assert (state["last"]["state"], state["version"]) == ("confirmed", release.version), (state, self.story())
        return state

    # -- looking ------------------------------------------------------------------------------------------------

    def pid(self) -> int:
        """The unit's main process."""
        return self.node.unit(self.unit).main_pid

    def link(self, name: str) -> str:
        """Where a link of the slots directory points."""
        return self.node.sh(f"readlink {self.slots}/{name}", check=False)

    def story(self) -> str:
        """What happened, for a failed test."""
        return self.node.sh(
            f"ls -laR {self.slots}; cat {self.file}; cd {self.slots} && tail -n +1 *.json trial* 2>&1;"
            f"systemctl status -n 30 --no-pager {self.unit} 'slotward-*@{self.name}*';"
            f"{self.node.story_of_journal()}",
            check=False,
        )
