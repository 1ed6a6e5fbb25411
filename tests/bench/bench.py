# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: what safety costs, as ratios from one run on one machine (median of five interleaved runs).

Every case compares with what an operator would do without us, in the same run: seconds alone mean nothing elsewhere.
Writes `build/bench.json`: {"cases": [{"name", "ratio", "limit"}]}; ends with 1 when a ratio is over its limit.

  bench.py            all cases
  bench.py NAME…      some of them; --list names them
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import http.server
import json
import os
import pathlib
import resource
import shutil
import socketserver
import statistics
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "hosts")]

OUTPUT = ROOT / "build" / "bench"
ROUNDS = 5
PYTHON = sys.executable
POLLER = str(ROOT / "tests" / "bench" / "poller.py")


class Case(NamedTuple):
    """One measured ratio and its limit; `of` says what was divided by what."""

    name: str
    ratio: float
    limit: Optional[float]
    of: str


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


def timed(argv: Sequence[str], **more: Any) -> float:
    """Seconds that a command takes; it must succeed."""
    began = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **more)
    return time.monotonic() - began


def interleaved(acts: Sequence[Callable[[int], float]], rounds: int = ROUNDS) -> List[float]:
    """The median of each act's results, the acts taking turns; each is told the round's number."""
    found: List[List[float]] = [[] for _act in acts]
    for number in range(rounds):
        for results, act in zip(found, acts):
            results.append(act(number))
    say("   " + " | ".join(" ".join(f"{value:.3f}" for value in results) for results in found))
    return [statistics.median(results) for results in found]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


@contextlib.contextmanager
def served(directory: pathlib.Path) -> Iterator[int]:
    """Serve a directory by HTTP on all of this machine's addresses; the port."""
    handler = functools.partial(_Quiet, directory=str(directory))
    with _Server(("", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()


class Bench:
    """What the cases share: the workshop and the hosts, made when first asked for."""

    def __init__(self, run: Any) -> None:
        from support import releases

        self.run = run
        self.shop = releases.Workshop(OUTPUT / "work")
        self._nodes: Dict[str, Any] = {}

    def node(self, name: str, suite: str = "bookworm") -> Any:
        """A host to put the agent on."""
        from support import node

        if name not in self._nodes:
            self._nodes[name] = node.Node(self.run.up(name, suite), self.shop)
        return self._nodes[name]

    # -- the command line ----------------------------------------------------------------------------------------

    def command(self) -> List[Case]:
        """`slotward update` against a bare interpreter, both in a host."""
        node = self.node("bench1")
        node.fresh(self.shop.release("1.0.0", 1))
        script = "import subprocess,sys,time\nt=time.monotonic()\nsubprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,check=True)\nprint(time.monotonic()-t)"

        def inside(*argv: str) -> Callable[[int], float]:
            return lambda _number: min(
                float(node.host.run(["python3", "-c", script, *argv]).stdout) for _again in range(3)
            )

        bare, update, version = interleaved(
            [inside("python3", "-I", "-c", "pass"), inside("slotward", "update"), inside("slotward", "version")]
        )
        return [
            Case("slotward update", update / bare, 6.0, "time of `slotward update` / `python3 -I -c pass`"),
            Case("slotward version", version / bare, None, "time of `slotward version` / `python3 -I -c pass`"),
        ]

    # -- downloading ---------------------------------------------------------------------------------------------

    def download(self) -> List[Case]:
        """Download, verify and stage 256 MiB over loopback, against curl, sha256sum, cp and sync."""
        place = OUTPUT / "download"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        big = place / "big"
        digest = hashlib.sha256()
        with big.open("wb") as file:
            for _block in range(256):
                data = os.urandom(1 << 20)
                digest.update(data)
                file.write(data)
        child = ROOT / "tests" / "bench" / "stage_once.py"
        with served(place) as port:
            url = f"http://127.0.0.1:{port}/big"

            def plain(_number: int) -> float:
                script = 'curl -sSf -o part "$1" && echo "$2  part" | sha256sum -c --status && cp part slot && sync part slot && sync .'
                seconds = timed(["sh", "-c", script, "sh", url, digest.hexdigest()], cwd=place)
                for name in ("part", "slot"):
                    (place / name).unlink()
                return seconds

            def ours(_number: int) -> float:
                return timed([PYTHON, "-I", str(child), url, str(256 << 20), digest.hexdigest(), str(place / "ours")])

            base, taken = interleaved([plain, ours])
        shutil.rmtree(place)
        return [Case("download 256 MiB", taken / base, 1.6, "download + verify + stage / curl + sha256sum + cp + sync")]

    # -- memory --------------------------------------------------------------------------------------------------

    def memory(self) -> List[Case]:
        """Peak memory of whole upgrades with a small and a large artifact, in the host, children included."""
        node = self.node("bench1")
        first = self.shop.release("1.0.0", 1)
        script = (
            "import resource,subprocess,sys\n"
            "subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,check=True)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        cases = []
        for mib in (1, 200):
            release = self.shop.release(f"1.0.{mib}", 1 + mib, pad_mib=mib)
            node.fresh(first, allow_http=True)
            with served(release.directory) as port:
                url = f"http://{node.host.controller_address}:{port}/{release.artifact.name}"
                argv = ["slotward", "upgrade", "--target", node.target(release, url), "--no-wait", "--here"]
                peak_kib = int(node.host.run(["python3", "-c", script, *argv], timeout=300).stdout.split()[-1])
            cases.append(
                Case(
                    f"peak memory, {mib} MiB artifact",
                    peak_kib / 1024 / 64,
                    1.0,
                    "peak of the upgrade and its children / 64 MiB",
                )
            )
        return cases

    # -- the service's downtime ------------------------------------------------------------------------------------

    def downtime(self) -> List[Case]:
        """How long a polling client finds the service down: a swap, and a plain restart of the same daemon unguarded."""
        node = self.node("bench1")
        node.fresh(self.shop.release("1.0.0", 1), trial_length_s=60, settle_s=0)
        node.host.put(POLLER, "/root/poller.py", 0o644)
        self._plain_unit(node)
        releases = [self.shop.release(f"1.1.{number}", 10 + number) for number in range(ROUNDS)]
        pushed = [(node.target(release), node.put(release.artifact)) for release in releases]

        def gap(unit: str, socket_path: str, script: str) -> float:
            """The longest silence while `script` has the unit restarted, from before until its new process answers."""
            wait = (
                f"old=$(systemctl show -P MainPID {unit}); python3 /root/poller.py {socket_path} & sleep 0.5; {script}; "
                f'until new=$(systemctl show -P MainPID {unit}) && [ "$new" != 0 ] && [ "$new" != "$old" ] && '
                f"systemctl -q is-active {unit}; do sleep 0.1; done; sleep 0.5; kill %1; wait %1"
            )
            return float(node.host.run(["bash", "-mc", wait], timeout=60).stdout.split()[-1])

        def restart(_number: int) -> float:
            return gap("plain.service", "/run/plain/status.sock", "systemctl restart plain.service")

        def swap(number: int) -> float:
            target, src = pushed[number]
            trial = f"{number:016x}"
            command = f"slotward upgrade --target {target} --src {src} --no-wait --id {trial} >/dev/null 2>&1"
            seconds = gap("slotward.service", "/run/slotward/status.sock", command)
            answer = node.confirm(trial)
            if answer.json["state"] != "confirmed":
                raise AssertionError(answer)
            return seconds

        plain, swapped = interleaved([restart, swap])
        more_ms = (swapped - plain) * 1000
        say(f"   down {plain * 1000:.0f} ms in a plain restart, {swapped * 1000:.0f} ms in a swap")
        return [Case("service down in a swap", more_ms / 50, 1.0, "(down in a swap - down in a plain restart) / 50 ms")]

    @staticmethod
    def _plain_unit(node: Any) -> None:
        node.sh("mkdir -p /opt/plain && cp /usr/local/bin/slotward /opt/plain/slotward")
        node.host.write("/etc/slotward/plain.toml", 'socket_path = "/run/plain/status.sock"\n', 0o600)
        text = node.host.read("/etc/systemd/system/slotward.service")
        text = text.replace("/usr/local/bin/slotward", "/opt/plain/slotward").replace(
            "/etc/slotward/config.toml", "/etc/slotward/plain.toml"
        )
        text = text.replace("RuntimeDirectory=slotward", "RuntimeDirectory=plain").replace(
            "StateDirectory=slotward", "StateDirectory=plain"
        )
        node.host.write("/etc/systemd/system/plain.service", text)
        node.sh("systemctl daemon-reload; systemctl restart plain.service")

    # -- at rest -----------------------------------------------------------------------------------------------------

    def idle(self) -> List[Case]:
        """What `node` costs while nothing happens: memory, and context switches over a minute."""
        node = self.node("bench1")
        node.fresh(self.shop.release("1.0.0", 1))
        pid = node.unit().main_pid
        time.sleep(5)
        pss_kib = int(node.sh(f"awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup"))

        def switches() -> int:
            return sum(
                int(line) for line in node.sh(f"awk '/ctxt_switches/ {{ print $2 }}' /proc/{pid}/status").splitlines()
            )

        def ticks() -> str:
            return str(node.sh("journalctl -q -u 'slotward-deadline@*' -u 'slotward-guard@*' | wc -l"))

        before, ticked = switches(), ticks()
        time.sleep(60)
        after = switches() - before
        if ticks() != ticked:
            raise AssertionError("the guard ran although no trial was pending")
        return [
            Case("idle node, memory", pss_kib / 1024 / 32, 1.0, "PSS / 32 MiB"),
            Case("idle node, context switches", after / 60, 1.0, "context switches a second over a minute / 1"),
        ]

    # -- helper mode -------------------------------------------------------------------------------------------------

    def helper(self) -> List[Case]:
        """A whole update by the daemon in helper mode against root mode, from `ask upgrade` until it is confirmed."""
        from support import node as nodes

        script = (
            "began=$(date +%s%N); slotward ask upgrade --target {target} --no-wait --id {trial} --json && "
            "slotward ask confirm --id {trial} --wait 30 --json; echo $(( ($(date +%s%N) - began) / 1000 ))"
        )
        modes = ("root", "helper")
        first, cases = self.shop.release("1.0.0", 1), []
        for settle_s, minor, limit in ((10, 1, 1.15), (1, 2, None)):
            for mode in modes:
                node = self.node(f"bench-{mode}")
                node.fresh(
                    first, mode, settle_s=settle_s, trial_length_s=60, confirm_sources="gateway", allow_http=True
                )
            made = [self.shop.release(f"4.{minor}.{number}", 10 * minor + number) for number in range(ROUNDS + 1)]

            def update(mode: str, number: int, made: Sequence[Any] = made) -> float:
                node, release, trial = self.node(f"bench-{mode}"), made[number], nodes.trial_id()
                target = node.target(release, node.served(release))
                shown = node.sh(script.format(target=target, trial=trial), timeout=120).splitlines()
                if '"state": "confirmed"' not in "".join(shown) or node.update()["version"] != release.version:
                    raise AssertionError("\n".join(shown) + node.story())
                return int(shown[-1]) / 1e6

            for mode in modes:
                update(mode, ROUNDS)  # what is made once (caches, the workshop's builds) is made before
            for mode in modes:
                self.node(f"bench-{mode}").fresh(
                    first, mode, settle_s=settle_s, trial_length_s=60, confirm_sources="gateway", allow_http=True
                )
            base, taken = interleaved([functools.partial(update, mode) for mode in modes])
            name, of = f"update by the helper, settle_s={settle_s}", "update in helper mode / in root mode"
            cases.append(Case(name, taken / base, limit, f"{of}, from asking to confirmed"))
        return cases + self._idle_helper(self.node("bench-helper"))

    @staticmethod
    def _idle_helper(node: Any) -> List[Case]:
        """The helper while nothing happens: memory, context switches of all its threads, and what it has loaded."""
        node.at_rest()
        time.sleep(35)  # connections that were idle have been closed
        pid = node.unit("slotward-helper.service").main_pid
        if "cryptography" in node.sh(f"cat /proc/{pid}/maps"):
            raise AssertionError("the helper has loaded cryptography")
        switches = f"cat /proc/{pid}/task/*/status | awk '/ctxt_switches/ {{ sum += $2 }} END {{ print sum }}'"
        before = int(node.sh(switches))
        time.sleep(60)
        after = int(node.sh(switches)) - before
        pss_kib = int(node.sh(f"awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup"))
        return [
            Case("idle helper, memory", pss_kib / 1024 / 24, 1.0, "PSS / 24 MiB"),
            Case("idle helper, context switches", float(after), 0.0, "context switches in a minute"),
        ]

    # -- the playbook --------------------------------------------------------------------------------------------------

    def playbook(self) -> List[Case]:
        """`upgrade.yml` on three hosts with 20 MB, against get_url, copy, systemd restart and is-active."""
        from support import plays

        nodes = [self.node(f"bench{number}") for number in (1, 2, 3)]
        first = self.shop.release("1.0.0", 1)
        for node in nodes:
            node.fresh(first, allow_http=True, settle_s=0, trial_length_s=60)
            self._plain_unit(node)
        releases = [self.shop.release(f"2.0.{number}", 100 + number, pad_mib=19) for number in range(ROUNDS + 1)]
        controller = plays.Controller(OUTPUT / "controller", self.run.inventory(), forks=3)
        with served(self.shop.base) as port:
            # every host sees the controller at an address of its own; all of them are this machine's
            base = f"http://{nodes[0].host.controller_address}:{port}"
            for node in nodes:
                node.sh(f"ip route replace {nodes[0].host.controller_address} via {node.host.controller_address}")

            def plain(number: int) -> float:
                release = releases[number]
                url = f"{base}/slotward/{release.version}/{release.artifact.name}"
                sha256 = self.shop.target(release)["sha256"]
                played = controller.play(
                    str(ROOT / "tests/bench/plain.yml"), {"plain_url": url, "plain_sha256": sha256}
                )
                return self._played(played)

            def ours(number: int) -> float:
                release = releases[number]
                played = controller.play(
                    "slotward.fleet.upgrade",
                    {
                        "target": "all",
                        "upgrade_release": str(release.directory),
                        "upgrade_pins": [key.pin for key in self.shop.keys],
                        "upgrade_threshold": 2,
                        "upgrade_url": f"{base}/slotward/{release.version}",
                        "upgrade_serial": ["100%"],
                        "upgrade_allow_http": True,
                    },
                )
                return self._played(played)

            plain(ROUNDS), ours(ROUNDS)  # what is made once (caches, connections) is made before
            releases[:] = [self.shop.release(f"2.1.{number}", 200 + number, pad_mib=19) for number in range(ROUNDS)]
            base_s, taken_s = interleaved([plain, ours])
        return [
            Case(
                "upgrade.yml, three hosts, 20 MB",
                taken_s / base_s,
                1.0,
                "upgrade.yml (settle_s=0) / get_url + copy + systemd + is-active",
            )
        ]

    @staticmethod
    def _played(played: Any) -> float:
        if played.status != 0:
            raise AssertionError(played.output[-3000:])
        return float(played.seconds)


CASES = ("command", "download", "memory", "downtime", "idle", "helper", "playbook")


def report(cases: Sequence[Case]) -> int:
    """Print and write the ratios; 1 when one is over its limit."""
    over = [case for case in cases if case.limit is not None and case.ratio > case.limit]
    width = max(len(case.name) for case in cases)
    for case in cases:
        limit = "no limit" if case.limit is None else f"at most {case.limit:g}"
        mark = "OVER" if case in over else "ok"
        say(f"{case.name.ljust(width)}  {case.ratio:6.2f}  {limit:12}  {mark:4}  {case.of}")
    rows = [{"name": case.name, "ratio": round(case.ratio, 3), "limit": case.limit} for case in cases]
    (ROOT / "build" / "bench.json").write_text(json.dumps({"cases": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if over else 0


def chosen(argv: Optional[Sequence[str]] = None) -> Tuple[str, ...]:
    """The cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the cases")
    args = parser.parse_args(argv)
    if args.list:
        say("\n".join(CASES))
        raise SystemExit(0)
    return tuple(args.names) or CASES


def main() -> int:
    """Measure; 0 when everything is within its limit."""
    names = chosen()
    if os.geteuid() != 0:
        print("make bench boots systemd hosts: run it as root", file=sys.stderr)
        return 1
    import hosts

    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    cases: List[Case] = []
    with hosts.Run() as run:
        bench = Bench(run)
        for name in names:
            act: Callable[[], List[Case]] = getattr(bench, name)
            say(f"{name}: {(act.__doc__ or '').strip()}")
            cases += act()
    say("")
    return report(cases)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
