# SPDX-License-Identifier: GPL-3.0-or-later
"""The hostctl command: its arguments, and one small function for each subcommand."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from concurrent import futures

from hosts import base, errors, fleet, reap, records, report, requirements, settings
from hosts.host import Host

Args = argparse.Namespace
DESCRIPTION = """\
Make, boot, reboot, cut and remove real systemd hosts (Debian in systemd-nspawn) for tests.

  hostctl requirements --install        what this machine needs, once
  hostctl up web1 web2 --suite trixie   make and boot two hosts
  hostctl exec web1 -- systemctl status a command in one, without SSH
  hostctl inventory --output hosts.yml  then: ansible -i hosts.yml all -m ping
  hostctl cut web1; hostctl boot web1   a hard stop, and a start of the same tree
  hostctl down --all                    remove them
"""
EPILOG = """\
Hosts belong to a run. The run 'default' is kept until 'down --all'; choose another with --run or SLOTWARD_HOSTS_RUN.
With --owner PID (or SLOTWARD_HOSTS_OWNER) a new run belongs to that process: once it is dead, the next 'up' or 'clean'
of anyone removes the run. In a script: SLOTWARD_HOSTS_OWNER=$$.
Trees are kept in SLOTWARD_HOSTS_CACHE (/var/cache/slotward-hosts), hosts in SLOTWARD_HOSTS_STATE (/var/lib/slotward-hosts).
"""


def _hosts(args: Args) -> list[Host]:
    """The hosts that were named, all of which have to be there."""
    requirements.check()
    return [Host(args.run, name) for name in args.names]


def do_base(args: Args) -> int:
    """Build and cache base trees."""
    requirements.check()
    for suite in args.suites or settings.SUITES:
        print(base.ensure(suite))
    return 0


def do_up(args: Args) -> int:
    """Make hosts and boot them."""
    run = fleet.Run(args.run, owner=args.owner)
    with futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        started = [
            pool.submit(run.up, name, args.suite, disk_mb=args.disk, inodes=args.inodes, binds=args.bind)
            for name in args.names
        ]
    for future in started:
        host = future.result()
        print(f"{host.name}: {host.suite}, up at {host.address}, the controller is {host.controller_address} there")
    return 0


def do_down(args: Args) -> int:
    """Remove hosts, or the whole run."""
    requirements.check()
    if args.all:
        reap.remove_run(args.run)
    elif not args.names:
        raise errors.HostError("name the hosts to remove, or say --all")
    for name in args.names:
        print(f"{name}: {'removed' if fleet.down(args.run, name) else 'there was none'}")
    return 0


def do_boot(args: Args) -> int:
    """Boot hosts that are down."""
    for host in _hosts(args):
        host.boot()
    return 0


def do_reboot(args: Args) -> int:
    """Shut hosts down cleanly and boot them again."""
    for host in _hosts(args):
        host.reboot()
    return 0


def do_poweroff(args: Args) -> int:
    """Shut hosts down cleanly; their trees stay."""
    for host in _hosts(args):
        host.poweroff()
    return 0


def do_cut(args: Args) -> int:
    """Stop hosts hard (SIGKILL); their trees stay."""
    for host in _hosts(args):
        host.cut()
    return 0


def do_exec(args: Args) -> int:
    """Run a command in a host, without SSH."""
    requirements.check()
    argv = Host(args.run, args.name).enter_argv(args.command)
    os.execvp(argv[0], argv)  # noqa: S606 - the command takes this process's place


def do_ssh(args: Args) -> int:
    """Log in to a host, or run a command there, by SSH."""
    requirements.check()
    argv = [*Host(args.run, args.name).ssh_args, *args.command]
    os.execvp(argv[0], argv)  # noqa: S606 - the command takes this process's place


def do_list(args: Args) -> int:
    """Show the hosts of all runs."""
    requirements.check()
    print(report.as_json() if args.json else report.as_table(), end="")
    return 0


def do_inventory(args: Args) -> int:
    """Write an Ansible inventory of the run's hosts."""
    requirements.check()
    text = fleet.inventory_of(args.run)
    if args.output is None:
        sys.stdout.write(text)
    else:
        args.output.write_text(text, encoding="utf-8")
    return 0


def do_clean(args: Args) -> int:
    """Remove what dead runs left behind; with --all everything, with --cache unused base trees too."""
    requirements.check()
    for name in reap.leftovers(everything=args.all):
        print(f"removed {name}")
    for path in base.remove_unused() if args.cache else []:
        print(f"removed {path}")
    return 0


def do_requirements(args: Args) -> int:
    """Say what is missing on this machine; with --install, install it."""
    if args.install:
        requirements.install()
    missing = requirements.missing_packages()
    for line in requirements.warnings():
        print(f"note: {line}")
    print(f"missing: {' '.join(missing)}" if missing else "nothing is missing")
    return 1 if missing else 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _owner(text: str) -> int:
    if not text.isdecimal() or not os.path.isdir(f"/proc/{text}"):
        raise argparse.ArgumentTypeError(f"there is no process {text!r}")
    return int(text)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], do: Callable[[Args], int]
) -> argparse.ArgumentParser:
    text = (do.__doc__ or "").strip()
    parser = commands.add_parser(do.__name__.removeprefix("do_"), help=text.rstrip(".").lower(), description=text)
    parser.set_defaults(do=do)
    return parser


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = _command(commands, do_up)
    up.add_argument("names", nargs="+", metavar="NAME")
    up.add_argument("--suite", choices=settings.SUITES, default="bookworm")
    up.add_argument(
        "--disk", type=_positive, metavar="MB", help="put /opt/slotward on a filesystem of its own, this big"
    )
    up.add_argument("--inodes", type=_positive, metavar="N", help="with --disk: make it with (at least) N inodes")
    up.add_argument(
        "--bind", action="append", default=[], metavar="HERE:THERE", help="show a path of this machine in the host"
    )


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="hostctl", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--run", default=os.environ.get("SLOTWARD_HOSTS_RUN", settings.DEFAULT_RUN), metavar="NAME")
    top.add_argument("--owner", type=_owner, default=os.environ.get("SLOTWARD_HOSTS_OWNER"), metavar="PID")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _command(commands, do_base).add_argument("suites", nargs="*", metavar="SUITE", help="default: all three")
    _add_up(commands)
    down = _command(commands, do_down)
    down.add_argument("names", nargs="*", metavar="NAME")
    down.add_argument("--all", action="store_true", help="the whole run")
    for do in (do_boot, do_reboot, do_poweroff, do_cut):
        _command(commands, do).add_argument("names", nargs="+", metavar="NAME")
    for do, count in ((do_exec, "+"), (do_ssh, "*")):
        inside = _command(commands, do)
        inside.add_argument("name", metavar="NAME")
        inside.add_argument("command", nargs=count, metavar="-- COMMAND")
    _command(commands, do_list).add_argument("--json", action="store_true")
    _command(commands, do_inventory).add_argument("--output", type=pathlib.Path, metavar="FILE")
    clean = _command(commands, do_clean)
    clean.add_argument("--all", action="store_true", help="also the runs that are kept or still have an owner")
    clean.add_argument("--cache", action="store_true", help="also the base trees that no host stands on")
    _command(commands, do_requirements).add_argument("--install", action="store_true")
    return top


def main(argv: Sequence[str]) -> int:
    """Run one command; an error is one line and code 1."""
    args = parser().parse_args(argv)
    try:
        records.check_name(args.run)
        code: int = args.do(args)
    except errors.HostError as error:
        print(f"hostctl: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hostctl: interrupted: 'hostctl clean' removes what was half made", file=sys.stderr)
        return 130
    return code
