# SPDX-License-Identifier: GPL-3.0-or-later
"""A small web daemon of another's, as a product: a script of one file, its unit, its releases, and how it answers.

- Each version has a list of statuses in it, and answers its n-th request with the n-th, from the beginning again at the end.
- It runs as an account of its own and writes nothing; it says one line at its start, and one when it is stopped.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any, Mapping, NamedTuple, Sequence

from support import releases
from support.node import BOX, Answer, Node

NAME = "webd"
UNIT = "webd.service"
WATCHER = "slotward-probe@webd.service"
ENTRYPOINT = "/usr/local/bin/webd"
SLOTS = "/opt/slotward/webd"
FILE = "/etc/slotward/products.d/webd.toml"
PORT = 8480
CONNECT = f"""
[probe-web]
kind = "http"
url = "http://127.0.0.1:{PORT}/"
"""

PROGRAM = """#!/usr/bin/python3 -I
import http.server, itertools, signal, sys
KEEP = open(__file__)
VERSION, SAYS, STARTS = {version!r}, {says!r}, {starts!r}
if sys.argv[1:] == ["version"]:
    print("webd", VERSION)
    sys.exit(0)
NEXT = itertools.cycle(int(word) for word in SAYS.split())
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(next(NEXT))
        self.end_headers()
        self.wfile.write(VERSION.encode())
    def log_message(self, *_words):
        pass
def stop(*_signal):
    print("panic: stopped", file=sys.stderr, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
server = http.server.HTTPServer(("127.0.0.1", {port}), Handler)
print(STARTS, file=sys.stderr, flush=True)
server.serve_forever()
"""

UNIT_TEXT = f"""[Unit]
Description=A web daemon

[Service]
ExecStart={ENTRYPOINT}
User=nobody
Restart=always
RestartSec=1s

[Install]
WantedBy=multi-user.target
"""


class Release(NamedTuple):
    """A published release of it."""

    version: str
    artifact: pathlib.Path
    manifest: pathlib.Path


def program(version: str, says: str = "200", starts: str = "ready") -> str:
    """The program of a version."""
    return PROGRAM.format(version=version, says=says, starts=starts, port=PORT)


def release(shop: releases.Workshop, version: str, sequence: int, says: str = "200", starts: str = "ready") -> Release:
    """Make and sign a release; the same is made once."""
    directory = shop.base / NAME / version
    source = shop.directory / "webd" / f"{NAME}_{version}_linux_{releases.ARCH}"
    source.parent.mkdir(exist_ok=True)
    found = Release(version, directory / source.name, directory / "manifest.json")
    if not found.manifest.exists():
        source.write_text(program(version, says, starts), encoding="utf-8")
        source.chmod(0o755)
        argv = ["build", "--product", NAME, "--version", version, "--sequence", str(sequence)]
        for key in shop.keys:
            argv += ["--key", str(key.path.with_suffix(".pub.pem"))]
        shop.release_command(*argv, "--artifact", str(source), "--output", str(shop.base))
        for key in shop.keys[: shop.threshold]:
            shop.release_command("sign", "--manifest", str(found.manifest), "--key", str(key.path), "--yes")
    assert found.artifact.read_text(encoding="utf-8") == program(version, says, starts)
    return found


def target(found: Release) -> Mapping[str, str]:
    """What a control side would send for it."""
    import hashlib

    digest = hashlib.sha256(found.artifact.read_bytes()).hexdigest()
    signature = found.manifest.read_text(encoding="utf-8")
    return {
        "product": NAME,
        "version": found.version,
        "url": "https://none.invalid/x",
        "sha256": digest,
        "signature": signature,
    }


class Webd:
    """It on one host, with 1.0.0 placed by hand and adopted."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def install(self, probes: str = CONNECT, confirm: str = "", **settings: object) -> None:
        """Place it by hand, describe it with these probes, and have it adopted."""
        node = self.node
        node.host.write(ENTRYPOINT, program("1.0.0"), 0o755)
        node.host.write(f"/etc/systemd/system/{UNIT}", UNIT_TEXT)
        node.sh(f"systemctl daemon-reload && systemctl enable -q --now {UNIT}")
        self.describe(probes, confirm, **settings)
        answer = self.slotward("setup")
        assert answer.exit == 0, answer
        node.sh(f"systemctl restart {UNIT}")

    def describe(self, probes: str = CONNECT, confirm: str = "", **settings: object) -> None:
        """Write its file."""
        shop = self.node.shop
        update: dict[str, object] = {"release_pins": shop.pins, "release_threshold": shop.threshold, "adopt": True}
        update.update({"confirm_sources": "probe", "trial_length_s": 40, "settle_s": 0}, **settings)
        lines = [f'unit = "{UNIT}"', f'entrypoint = "{ENTRYPOINT}"', "[update]"]
        for key, value in update.items():
            lines.append(f"{key} = {json.dumps(value)}")
        text = "\n".join(lines) + f"\n[confirm]\ninterval_s = 1\n{confirm}\n{probes}"
        self.node.host.write(FILE, text, 0o600)

    def remove(self) -> None:
        """Take it away, and all that is ours of it."""
        self.node.host.boot()
        self.node.host.run(["slotward", "--product", NAME, "remove", "--purge", "--json"], check=False)
        script = f"systemctl disable -q --now {UNIT} {WATCHER}; rm -rf {ENTRYPOINT}* {SLOTS} {FILE} /etc/systemd/system/{UNIT}*"
        self.node.sh(
            f"{script} /etc/systemd/system/*webd*; systemctl daemon-reload; systemctl reset-failed", check=False
        )

    def slotward(self, *words: str) -> Answer:
        """Run a command about it."""
        return self.node.command(["slotward", "--product", NAME, *words])

    def upgrade(self, found: Release, *flags: str) -> Answer:
        """Upgrade to a release, with `flags`; without `--no-wait` this waits for the trial's end."""
        path = f"{BOX}/target-{NAME}-{found.version}.json"
        self.node.host.write(path, json.dumps(target(found)))
        return self.slotward("upgrade", "--target", path, "--src", self.node.put(found.artifact), *flags)

    def update(self) -> dict[str, Any]:
        """Its state by `slotward update`."""
        answer = self.slotward("update")
        assert answer.exit == 0, answer
        return answer.json

    def runs(self) -> str:
        """The version that answers; "" when nothing does."""
        return self.node.sh(
            f"python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{PORT}/', timeout=3).read().decode())\"",
            check=False,
        )

    def watcher(self) -> tuple[str, str]:
        """What systemd says of the unit that looks at its probes: its state and its result."""
        shown = self.node.sh(f"systemctl show -p ActiveState,Result {WATCHER}").splitlines()
        found = dict(line.partition("=")[::2] for line in shown)
        return found["ActiveState"], found["Result"]

    def waits(self, what: Sequence[str], within: float = 40) -> dict[str, Any]:
        """Wait until probing has come to one of these verdicts; the state then."""
        self.node.waits(lambda: (self.update()["probes"] or {}).get("verdict") in what, within, f"probing says {what}")
        return self.update()

    def story(self) -> str:
        """What happened, for a failed test."""
        return self.node.sh(
            f"cat {FILE}; ls -la {SLOTS}; cd {SLOTS}; tail -n +1 *.json trial* 2>/dev/null; systemctl status -n 30 --no-pager {UNIT} {WATCHER}",
            check=False,
        )
