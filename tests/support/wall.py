# SPDX-License-Identifier: GPL-3.0-or-later
"""A test host whose wall clock is off, and one that slept, without ever touching the clock of the machine around it.

- The wall clock is one for a machine and all its containers. So every program of the host that is started from then on has a
  small library loaded (`/etc/ld.so.preload`), which adds what `/etc/test-clock` says to CLOCK_REALTIME, each time that it is asked.
  Steps show at once in programs that run. CLOCK_MONOTONIC, CLOCK_BOOTTIME and /proc/uptime are the machine's own.
- What is not off: the kernel's own stamps on files, programs that ran before, and the host's systemd until the host boots again.
  A timer of systemd that counts by the wall clock would not see a step; ours count by the monotonic clock (I10).
- A suspension is CLOCK_BOOTTIME and /proc/uptime going on while CLOCK_MONOTONIC stands still. Here a file over /proc/uptime is
  ahead, for whoever reads it: the guard and every command. What the kernel tells by clock_gettime(CLOCK_BOOTTIME) is not.
"""

from __future__ import annotations

import pathlib
import subprocess
import time

import hosts

OFFSET = "/etc/test-clock"
LIBRARY = "/etc/test-clock.so"
PRELOAD = "/etc/ld.so.preload"
UPTIME = "/run/test-uptime"
SOURCE = r"""
/* No header and no library, so that it fits every suite's. */
struct timespec { long tv_sec; long tv_nsec; };
struct timeval { long tv_sec; long tv_usec; };
extern int *__errno_location(void);
#if defined(__x86_64__)
enum { READ = 0, CLOSE = 3, CLOCK_GETTIME = 228, OPENAT = 257 };
static long call(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { READ = 63, CLOSE = 57, CLOCK_GETTIME = 113, OPENAT = 56 };
static long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#endif
static long off(void)
{
    char text[24];
    long descriptor = call(OPENAT, -100, (long)"@OFFSET@", 02000000, 0), length, value = 0, at = 0;
    if (descriptor < 0)
        return 0;
    length = call(READ, descriptor, (long)text, sizeof text, 0);
    call(CLOSE, descriptor, 0, 0, 0);
    if (length > 0 && text[0] == '-')
        at = 1;
    for (long i = at; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        value = value * 10 + (text[i] - '0');
    return at ? -value : value;
}
int clock_gettime(int id, struct timespec *now)
{
    long result = call(CLOCK_GETTIME, id, (long)now, 0, 0);
    if (result < 0) {
        *__errno_location() = (int)-result;
        return -1;
    }
    if (id == 0 || id == 5) /* CLOCK_REALTIME, CLOCK_REALTIME_COARSE */
        now->tv_sec += off();
    return 0;
}
long time(long *where)
{
    struct timespec now;
    clock_gettime(0, &now);
    if (where)
        *where = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec found;
    (void)zone;
    clock_gettime(0, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}
"""


def build(directory: pathlib.Path) -> pathlib.Path:
    """The library, built."""
    source, made = directory / "wall.c", directory / "wall.so"
    source.write_text(SOURCE.replace("@OFFSET@", OFFSET), encoding="ascii")
    flags = ["-std=gnu99", "-Wall", "-Werror", "-O2", "-ffreestanding", "-fno-builtin", "-fPIC", "-shared", "-nostdlib"]
    subprocess.run(["gcc", *flags, "-o", str(made), str(source)], check=True, timeout=60)
    return made


class Wall:
    """The wall clock of one host."""

    def __init__(self, host: hosts.Host, library: pathlib.Path) -> None:
        self._host = host
        self.off_by(0)
        host.put(library, LIBRARY, 0o755)
        host.write(PRELOAD, f"{LIBRARY}\n")
        before = int(host.run(["date", "+%s"]).stdout)
        self.off_by(5000)
        assert 4990 < int(host.run(["date", "+%s"]).stdout) - before < 5100, "the library is not in force"
        self.off_by(0)

    def off_by(self, seconds: int) -> None:
        """Let the clock be off by so much from now on; a host that is down finds it so when it boots."""
        path = pathlib.Path(self._host.root, OFFSET[1:])
        beside = path.with_suffix(".new")
        beside.write_text(f"{seconds}\n", encoding="ascii")
        beside.chmod(0o644)
        beside.rename(path)

    def says(self, seconds: int) -> None:
        """Let the clock say that it is so many seconds after 1970."""
        self.off_by(seconds - int(time.time()))

    def remove(self) -> None:
        """Leave the clock as the machine has it, the host being up or not."""
        for name in (PRELOAD, LIBRARY, OFFSET):
            pathlib.Path(self._host.root, name[1:]).unlink(missing_ok=True)


def slept(host: hosts.Host, seconds: int) -> None:
    """Let /proc/uptime be ahead by so much, and stand there; `woken` ends it."""
    script = f"read up idle </proc/uptime; echo $((${{up%.*}} + {seconds})).00 $idle >{UPTIME}; mount --bind {UPTIME} /proc/uptime"
    host.run(script)


def woken(host: hosts.Host) -> None:
    """Have /proc/uptime tell the machine's own again."""
    host.run(f"while mountpoint -q /proc/uptime; do umount /proc/uptime || exit; done; rm -f {UPTIME}")
