# SPDX-License-Identifier: GPL-3.0-or-later
"""A daemon that is not the agent, on a real test host: a shell script with a unit of its own, its releases, its product's file.

- The script answers `version`, and runs `body` for as long as it is told; the shell keeps the script open, so its bytes are proven.
- `clear` leaves nothing of it on the host.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from support import node as nodes
from support import releases

RUNS = "exec sleep infinity"
STAYS = "while :; do sleep 1; done"
UNIT = """\
[Unit]
Description=A toy

[Service]
ExecStart={entrypoint}
Restart=on-failure
RestartSec=300ms

[Install]
WantedBy=multi-user.target
"""


@contextlib.contextmanager
def running(node: nodes.Node, first: releases.Release, adopted: bool = True) -> Iterator[Toy]:
    """A toy that runs, described, on a host with the agent `first`; adopted, or not yet."""
    node.fresh(first)
    made = Toy(node)
    made.clear()
    made.install("1.0.0")
    made.describe()
    if adopted:
        answer = made.slotward("setup", "--adopt")
        assert answer.exit == 0, answer
    try:
        yield made
    finally:
        made.clear()


class Toy:
    """One product on one host."""

    def __init__(self, node: nodes.Node, name: str = "toy", entrypoint: str = "") -> None:
        self.node = node
        self.name = name
        self.unit = f"{name}.service"
        self.entrypoint = entrypoint or f"/usr/local/sbin/{name}"
        self.slots = f"/opt/slotward/{name}"
        self.file = f"/etc/slotward/products.d/{name}.toml"

    def clear(self) -> None:
        """Remove it from the host, however far a test came."""
        pattern = f"slotward-guard@{self.name} slotward-rollback@{self.name} slotward-deadline@{self.name}"
        units = " ".join(f"/etc/systemd/system/{unit}*" for unit in [*pattern.split(), self.unit])
        self.node.sh(
            f"systemctl disable -q --now {self.unit} slotward-deadline@{self.name}.timer 2>/dev/null; "
            f"rm -rf {self.slots} {self.file} {self.entrypoint} {self.entrypoint}.* {units} "
            f"/usr/local/lib/slotward/guard.d/{self.name}.env /etc/systemd/system/*.wants/slotward-*@{self.name}.*; "
            "systemctl daemon-reload; systemctl reset-failed; true"
        )

    def program(self, version: str, body: str = STAYS) -> str:
        """The script's text."""
        return f'#!/bin/sh\nif [ "$1" = version ]; then echo "{self.name} {version}"; exit 0; fi\n{body}\n'

    def install(self, version: str, body: str = STAYS) -> None:
        """Put the program and its unit there as an operator would, and start it."""
        self.node.host.write(self.entrypoint, self.program(version, body), 0o755)
        self.node.host.write(f"/etc/systemd/system/{self.unit}", UNIT.format(entrypoint=self.entrypoint))
        self.node.sh(f"systemctl daemon-reload; systemctl enable -q --now {self.unit}")

    def describe(self, text: str = "", top: str = "", **update: object) -> None:
        """Write its file: pins and short times, `update` over them (None leaves a key out), and more sections."""
        shop = self.node.shop
        values: dict[str, object] = {"release_pins": shop.pins, "release_threshold": shop.threshold, **nodes.DEFAULTS}
        values.update(update)
        head = f'unit = "{self.unit}"\nentrypoint = "{self.entrypoint}"\n{top}\n'
        body = nodes.toml({key: value for key, value in values.items() if value is not None})
        self.node.sh(f"mkdir -p {pathlib.PurePosixPath(self.file).parent}")
        self.node.host.write(self.file, head + body + text, 0o644)

    def slotward(self, *arguments: str, timeout: float = 120) -> nodes.Answer:
        """Run `slotward --product NAME …`."""
        return self.node.slotward("--product", self.name, *arguments, timeout=timeout)

    def release(self, version: str, sequence: int, body: str = STAYS, more: Sequence[str] = ()) -> pathlib.Path:
        """The directory of a signed release."""
        return self.release_of(version, sequence, self.program(version, body).encode(), more=more)

    def release_of(
        self, version: str, sequence: int, content: bytes, suffix: str = "", more: Sequence[str] = ()
    ) -> pathlib.Path:
        """The directory of a signed release whose artifact has these bytes; `suffix` is `.tar.gz` for an archive."""
        shop = self.node.shop
        asked = hashlib.sha256(repr((content, sequence, suffix, tuple(more))).encode()).hexdigest()[:16]
        base = shop.directory / "toys" / asked  # all tests of a run share the workshop, and each has its own 1.1.0
        found = base / self.name / version
        if (found / "manifest.json").exists():
            return found
        made = base / "programs" / f"{self.name}_{version}_linux_{releases.ARCH}{suffix}"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(content)
        argv = ["build", "--product", self.name, "--version", version, "--sequence", str(sequence)]
        for key in shop.keys:
            argv += ["--key", str(key.path.with_suffix(".pub.pem"))]
        shop.release_command(*argv, "--artifact", str(made), "--output", str(base), *more)
        for key in shop.keys[: shop.threshold]:
            shop.release_command("sign", "--manifest", str(found / "manifest.json"), "--key", str(key.path), "--yes")
        return found

    def target(self, release: pathlib.Path) -> tuple[str, str]:
        """Push a release's target and artifact; their paths on the host."""
        version = release.name
        artifact = release / f"{self.name}_{version}_linux_{releases.ARCH}"
        fields = {
            "product": self.name,
            "version": version,
            "url": "",
            "sha256": hashlib.sha256(artifact.read_bytes()).hexdigest(),
            "signature": (release / "manifest.json").read_text(encoding="utf-8"),
        }
        path = f"{nodes.BOX}/target-{self.name}-{version}.json"
        self.node.host.write(path, json.dumps(fields))
        return path, self.node.put(artifact)

    def begin(self, release: pathlib.Path, *flags: str) -> nodes.Answer:
        """Upgrade to a release, without waiting for the trial's end."""
        target, artifact = self.target(release)
        return self.slotward(
            "upgrade", "--target", target, "--src", artifact, "--no-wait", "--id", nodes.trial_id(), *flags
        )

    def on_trial(self, release: pathlib.Path, *flags: str) -> str:
        """Begin a trial, which must succeed; its id."""
        answer = self.begin(release, *flags)
        assert (answer.exit, answer.json["state"]) == (0, "trial"), answer
        return str(answer.json["trial"]["id"])

    def upgraded(self, release: pathlib.Path, *flags: str) -> nodes.Answer:
        """Upgrade and confirm, which must succeed."""
        answer = self.slotward("confirm", "--id", self.on_trial(release, *flags), "--wait", "15")
        assert (answer.exit, answer.json["state"]) == (0, "confirmed"), answer
        return answer

    def update(self) -> dict[str, Any]:
        """Its state."""
        answer = self.slotward("update")
        assert answer.exit == 0, answer
        return answer.json

    def goes_back(self, codes: Sequence[str], within: float) -> dict[str, Any]:
        """Wait until the trial has ended and the good version runs; the last update's record."""
        self.node.waits(
            lambda: self.update()["trial"] is None and self.update()["unit"]["active"] == "active",
            within,
            "it goes back",
        )
        last: dict[str, Any] = self.update()["last"]
        assert last["code"] in codes, last
        return last
