# SPDX-License-Identifier: GPL-3.0-or-later
"""What broken releases do (`tests/support/broken.py`): texts of Python for the agent's own daemon, of sh for another one.

- What a release tries against its host it says on standard error: `could <what>`, or `could not <what>: <why>`.
- Where a machine might come to harm, it looks first whether the host keeps it from that, and does nothing otherwise.
"""

from __future__ import annotations

SLOTS = "/opt/slotward/slotward"
GUARD_DIR = "/usr/local/lib/slotward"
FILLER = "/var/lib/slotward/filler"
MOST_MIB = 1024
"""Who eats memory stops here should nothing limit it."""

_TRIES = """\
import os, sys
def tries(what, act):
    try:
        act()
    except Exception as error:
        print("could not %s: %s" % (what, error), file=sys.stderr, flush=True)
    else:
        print("could %s" % what, file=sys.stderr, flush=True)
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
"""
_LATER = """\
import threading
def later(act):
    threading.Thread(target=act, daemon=True).start()
"""

FORKS = """\
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(60)
os._exit(0)
"""
DEAF = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""
EXTENDS = """\
import os, signal, socket, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
def asks():
    name = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        while True:
            try:
                manager.sendto(b"EXTEND_TIMEOUT_USEC=60000000", name.replace("@", "\\0", 1) if name[0] == "@" else name)
            except OSError:
                pass
            time.sleep(1)
threading.Thread(target=asks, daemon=True).start()
"""
WITHOUT_SOCKETS = f"""\
import os, stat, time
{_LATER}
def close():
    time.sleep(2)
    nothing = os.open("/dev/null", os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(nothing, int(name))
        except OSError:
            pass
later(close)
"""
EATS = f"""\
import sys
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
hoard = []
while len(hoard) < {MOST_MIB // 16}:
    hoard.append(b"x" * (16 << 20))
print("nothing limits memory here: stopped at {MOST_MIB} MiB", file=sys.stderr, flush=True)
"""
FILLS = f"""\
import os
with open("{FILLER}", "ab", buffering=0) as file:
    size = 1 << 20
    while size and file.tell() < 512 << 20:
        try:
            file.write(b"x" * size)
        except OSError:
            size //= 2
os._exit(1)
"""
SPINS = """\
import os
try:
    os.nice(19)
except OSError:
    pass  # a sandbox may forbid that
while True:
    pass
"""
ONCE_GOOD = f"""\
import os, time
{_LATER}
def watch():
    mine = os.readlink("{SLOTS}/current")
    while os.readlink("{SLOTS}/good") != mine:
        time.sleep(0.2)
    time.sleep(0.5)
    os._exit(7)
later(watch)
"""
EVERY_SECOND = """\
import os
with open("/var/lib/slotward/.starts", "ab") as file:
    file.write(b".")
    file.flush()
    count = file.tell()
if count % 2:
    os._exit(1)
"""
OWN_FILES = f"""\
{_TRIES}
slot = "{SLOTS}/" + os.readlink("{SLOTS}/current")
def change():
    with open(slot, "r+b") as file:
        file.seek(0, 2)
        file.write(b"changed")
tries("change its own file", change)
tries("remove its own file", lambda: os.unlink(slot))
tries("open its own file to all", lambda: os.chmod(slot, 0o777))
"""
CLOCK = f"""\
{_TRIES}
import time
def clock():
    with open("/proc/self/status") as file:
        held = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))
    if held >> 25 & 1:  # CAP_SYS_TIME: the machine's own clock would move
        raise RuntimeError("not tried, for this host would let it")
    time.clock_settime(time.CLOCK_REALTIME, time.time() + 86400)
tries("set the clock", clock)
"""
RECORDS = f"""\
{_TRIES}
slots = "{SLOTS}/"
mine = os.readlink(slots + "current")
def longer():
    with open(slots + "trial") as file:
        lines = dict(line.rstrip("\\n").split("=", 1) for line in file)
    lines["LENGTH_S"] = "3600"
    lines["DEADLINE_S"] = str(int(lines["DEADLINE_S"]) + 3000)
    write(slots + "trial", "".join("%s=%s\\n" % pair for pair in lines.items()))
def good():
    os.symlink(mine, slots + "good.mine")
    os.rename(slots + "good.mine", slots + "good")
tries("give itself an hour", longer)
tries("confirm itself", lambda: os.rename(slots + "trial", slots + "trial.confirm"))
tries("call itself good", good)
tries("lower the floor", lambda: write(slots + "update.json", "{{}}"))
"""
NO_GUARD = f"""\
{_TRIES}
units = "/etc/systemd/system/"
tries("remove the guard", lambda: os.unlink("{GUARD_DIR}/guard"))
tries("empty the guard", lambda: write("{GUARD_DIR}/guard", ""))
tries("remove the guard's facts", lambda: os.unlink("{GUARD_DIR}/guard.d/slotward.env"))
tries("remove the guard's unit", lambda: os.unlink(units + "slotward-guard@.service"))
tries("remove the timer", lambda: os.unlink(units + "slotward-deadline@.timer"))
tries("remove the drop-in", lambda: os.unlink(units + "slotward.service.d/50-slotward-rollback.conf"))
"""
_OUTSIDE = f"""\
set -e
systemctl stop slotward-deadline@slotward.timer
rm -f {GUARD_DIR}/guard /etc/systemd/system/slotward-deadline@.* /etc/systemd/system/slotward-guard@.*
systemctl daemon-reload
deadline=$(sed -n s/^DEADLINE_S=//p {SLOTS}/trial)
sed -i -e s/^LENGTH_S=.*/LENGTH_S=3600/ -e s/^DEADLINE_S=.*/DEADLINE_S=$((deadline + 3000))/ {SLOTS}/trial
"""
AS_ROOT = f"""\
{_TRIES}{_LATER}
import subprocess
def outside():
    argv = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", "sh", "-c", {_OUTSIDE!r}]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
    if done.returncode != 0:
        raise OSError("status %d: %s" % (done.returncode, done.stderr.decode().strip()))
later(lambda: tries("act as root outside of its sandbox", outside))
"""
"""Whoever is root for systemd is root outside of every sandbox: the guard goes, and the trial gets an hour."""

SHELL_FORKS = "(trap '' HUP; while :; do sleep 1; done) &\nexit 0"
SHELL_DEAF = "trap '' TERM INT HUP; while :; do sleep 1; done"
SHELL_ONCE_GOOD = """\
slots=/opt/slotward/toy
mine=$(readlink $slots/current)
while [ "$(readlink $slots/good)" != "$mine" ]; do sleep 0.2; done
sleep 0.5
exit 7"""
SHELL_OWN_FILES = """\
slots=/opt/slotward/toy
echo "# changed" >>"$slots/$(readlink $slots/current)"
while :; do sleep 1; done"""
SHELL_RECORDS = """\
sleep 2
sed -i -e 's/^DEADLINE_S=.*/DEADLINE_S=999999999/' /opt/slotward/toy/trial
while :; do sleep 1; done"""
SHELL_NO_GUARD = f"""\
rm -f {GUARD_DIR}/guard
while :; do sleep 1; done"""
