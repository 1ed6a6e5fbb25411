# SPDX-License-Identifier: GPL-3.0-or-later
"""One boot of the virtual machine: qemu without KVM, told what to do by a disk, heard on its second serial line, killed.

- SIGKILL of qemu loses what the guest had not handed to its disk, as a power cut does. The disk's own cache is this machine's
  memory, which outlives qemu: so `cache=unsafe` loses nothing more, and does not wait for this machine's disk.
- A virtual processor counts instructions (`-icount`), so that the guest's clock stands still while this machine is busy with others:
  no time limit of the guest ends for want of a turn.
- How long something took, and when to cut, is counted in qemu's own processor seconds for the same reason.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence

QEMU = "qemu-system-x86_64"
MAIL_BYTES = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
POLL_S = 0.02
STALLED_S, STALLED_CPU_S = 120.0, 0.5
"""So long with so little to do is no machine at work, which looks about it ten times a second."""
APPEND = (
    "console=ttyS0 root=/dev/nvme0n1 rw rootwait panic=-1 quiet loglevel=4 mitigations=off nokaslr audit=0"
    " systemd.show_status=0 rcupdate.rcu_expedited=1 random.trust_bootloader=on no_timer_check init_on_alloc=0"
    " lpj=4000000 tsc=reliable nosmp cryptomgr.notests raid=noautodetect i8042.noaux i8042.nokbd 8250.nr_uarts=2"
)


class Ended(Exception):
    """The machine is not there any more, or took more than it may; what was asked of it will not come."""


class Killed(Exception):
    """Somebody else has ended qemu: that says nothing of the guest."""


class Stalled(Exception):
    """The machine does nothing any more: rarely, qemu without KVM never wakes a processor that waits.

    Or it has lost its disk: the kernel was woken minutes of its own time too late, gave the controller up, and every read and
    write fails. What is written on a disk cannot do that.
    """


class Machine:
    """A running machine."""

    def __init__(
        self, kernel: pathlib.Path, disks: Sequence[pathlib.Path], mail: Dict[str, Any], directory: pathlib.Path
    ) -> None:
        """Write the mail, and power on."""
        self.console = directory / "console.log"
        letter = directory / "mail.img"
        data = json.dumps(mail).encode("ascii")
        letter.write_bytes(data + b"\0" * (MAIL_BYTES - len(data)))
        self._buffer = b""
        self.began = time.monotonic()
        self._qemu = subprocess.Popen(
            self._argv(kernel, [disks[0], letter, *disks[1:]]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _argv(self, kernel: pathlib.Path, disks: Sequence[pathlib.Path]) -> List[str]:
        """One nvme controller, so that a disk's name is its place in this list."""
        argv = [
            QEMU,
            "-accel",
            "tcg,thread=single,tb-size=256",
            "-icount",
            "shift=1",
            "-machine",
            "pc,acpi=off",
            "-cpu",
            "max",
            "-m",
            "512",
        ]
        argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-net", "none"]
        argv += ["-kernel", str(kernel), "-append", APPEND, "-device", "nvme,id=c,serial=x"]
        for number, disk in enumerate(disks, 1):
            argv += ["-drive", f"file={disk},format=raw,if=none,id=d{number},cache=unsafe"]
            argv += ["-device", f"nvme-ns,drive=d{number},bus=c,nsid={number}"]
        return [*argv, "-serial", f"file:{self.console}", "-serial", "stdio"]

    def cpu_s(self) -> float:
        """The processor seconds that it has used."""
        try:
            text = pathlib.Path(f"/proc/{self._qemu.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return 0.0
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def say(self, until_cpu_s: float) -> Optional[Dict[str, Any]]:
        """The next thing that the guest says; None when it has used so much processor time before. Raises Ended, Killed, Stalled."""
        assert self._qemu.stdout is not None
        seen_s, since = self.cpu_s(), time.monotonic()
        while True:
            if self.cpu_s() > seen_s + STALLED_CPU_S:
                seen_s, since = self.cpu_s(), time.monotonic()
            if time.monotonic() > since + STALLED_S:
                raise Stalled
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                told = self._told(line)
                if told is not None:
                    return told
                continue
            if self.cpu_s() >= until_cpu_s:
                return None
            if select.select([self._qemu.stdout], [], [], POLL_S)[0]:
                block = os.read(self._qemu.stdout.fileno(), 65536)
                if not block:
                    if self._qemu.wait() < 0:
                        raise Killed("somebody has ended qemu")
                    if self._lost_disk():
                        raise Stalled
                    raise Ended(f"qemu has ended: {self._buffer.decode('utf-8', 'replace')}{self.last_words()}")
                self._buffer += block

    @staticmethod
    def _told(line: bytes) -> Optional[Dict[str, Any]]:
        try:
            told = json.loads(line.strip())
        except ValueError:
            return None  # qemu's own words, or a line that a cut has torn
        return told if isinstance(told, dict) else None

    def _lost_disk(self) -> bool:
        """Whether the kernel says that the controller of its disk does not answer."""
        return "I/O error, dev nvme" in self._written()

    def last_words(self) -> str:
        """The end of what the kernel and systemd wrote."""
        return self._written()[-3000:]

    def _written(self) -> str:
        try:
            return self.console.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Take its power away, if it has not ended by itself; nothing of it is left then."""
        self._qemu.kill()
        self._qemu.wait()
        assert self._qemu.stdout is not None
        self._qemu.stdout.close()
