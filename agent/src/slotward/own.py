# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent as a product of its own engine, and its configuration file."""

from __future__ import annotations

import contextlib
import os
from typing import Any, List, NamedTuple, Optional, Tuple

from slotcore import config as configs
from slotcore import config_table, toml
from slotcore import product as products
from slotward import build_info, host


class Setup(NamedTuple):
    """A product with the configuration it came from; `problems` refuse updates and nothing else (I8)."""

    product: products.Product
    config: configs.Config
    problems: Tuple[str, ...]
    config_path: str
    agent: Tuple[str, str] = (f"/usr/local/bin/{build_info.NAME}", build_info.CONFIG)
    """For units that call the agent for this product: its program, and its own configuration."""

    @property
    def is_agent(self) -> bool:
        """Whether it is the agent itself, not another product of the host."""
        return self.product.name == build_info.NAME

    @property
    def inbox(self) -> str:
        """Where the daemon stages, as whichever account it runs."""
        return os.path.join(self.config.data_dir, "staging")

    @property
    def staging(self) -> str:
        """Where this process stages: a command of root's never in a directory that another account owns."""
        if not self.is_agent:
            return os.path.join(self.product.slots_dir, "staging")
        shared = self.config.mode != config_table.ROOT and os.geteuid() == 0
        return os.path.join(self.product.slots_dir, "staging") if shared else self.inbox


def read_config(path: str) -> Tuple[configs.Config, Tuple[str, ...]]:
    """The configuration to run with, and why updates are refused, if they are. Never raises for what it reads."""
    try:
        text, problem = read_root_s(path)
        if problem:
            return configs.unreadable(path, "it " + problem)
        if text is None and path != build_info.CONFIG:
            return configs.unreadable(path, "there is no such file")  # somebody named it, so somebody meant it
        return configs.load(text, path)
    except OSError as error:
        return configs.unreadable(path, error.strerror or str(error))


def read_root_s(path: str) -> Tuple[Optional[bytes], str]:
    """The file's bytes (None: there is none), or why somebody else than root could have written it: then none of it counts.

    A link is followed: who manages a host's files may keep them elsewhere. What it leads to is judged as the file itself.
    """
    try:
        descriptor = host.open_named(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    with open(descriptor, "rb") as file:
        return file.read(toml.MAX_BYTES + 1), _problem(path, os.fstat(descriptor))


def _problem(path: str, found: os.stat_result) -> str:
    ways = {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}
    return host.owner_problem(found) or "".join(sorted(host.way_problem(way) for way in ways)[-1:])


def unsafe(path: str) -> Tuple[str, ...]:
    """What `read_config` says of a file that somebody else than root could have written; nothing of any other."""
    problem = _problem(path, os.stat(path)) if os.path.exists(path) else ""
    return configs.unreadable(path, "it " + problem)[1] if problem else ()


def mends(path: str) -> str:
    """The command that makes a file root's alone which somebody else could have written, or the ways to it; "" where it is."""
    from slotward import ways  # only who is asked what is wrong with a host needs it

    commands: List[str] = []
    with contextlib.suppress(OSError):
        found = os.stat(path)
        commands += [f"chown root {path}"] * (found.st_uid not in (0, os.geteuid()))
        commands += [f"chmod go-w {path}"] * bool(found.st_mode & 0o022)
        on_the_way = {os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))}
        at_risk = [risk for risk in ways.at_risk(sorted(on_the_way)) if not risk.public]
        commands += [risk.run for risk in at_risk if host.way_problem(risk.path)]
    return " && ".join(commands)


def demand_readable(path: str) -> None:
    """Raise PermissionError when this user may not read the file: what it says is no problem of the file then."""
    try:
        os.close(host.open_named(path))
    except (FileNotFoundError, NotADirectoryError):
        return


def product_of(config: configs.Config) -> products.Product:
    """The agent itself, as `config` describes it."""
    return products.Product(
        name=build_info.NAME,
        unit=build_info.UNIT,
        entrypoint=config.entrypoint,
        slots_dir=config.slots_dir,
        pins=config.release_pins,
        threshold=config.release_threshold,
        base_floor=max(config.release_sequence, _embedded_floor(config)),
        least_floor=config.release_sequence,
        confirm_sources=config.confirm_sources,
        probes=(_probe(config),) if "probe" in config.confirm_sources else (),
        trial_length_s=config.trial_length_s,
        settle_s=config.settle_s,
        max_boots=config.max_boots,
        smoke_argv=("version",) if config.smoke_test else (),
        adopt=config.adopt,
        status_socket=config.socket_path,
        helper_unit=build_info.HELPER_UNIT if config.mode == "helper" else "",
        helper_socket=config.helper_socket if config.mode == "helper" else "",
        policy=products.Policy._make(getattr(config, field) for field in products.Policy._fields),
        mirrors=config.mirrors,
    )


def _probe(config: configs.Config) -> products.Probe:
    """What confirms the agent itself as `probe`: its unit has been active, as one process, for the settle time.

    It is the good release that looks (`S/good`), never the one on trial; what else is to be looked at, a controller or
    a gateway looks at.
    """
    return products.Probe("unit", "unit", unit=build_info.UNIT, for_s=config.settle_s)


def _embedded_floor(config: configs.Config) -> int:
    """The running program's own sequence where that binds this host: nothing is in slots yet, or it is the good release.

    A release on trial is not confirmed yet, and a program from elsewhere was never this host's.
    """
    if not os.path.lexists(os.path.join(config.slots_dir, "current")):
        return build_info.SEQUENCE
    good = os.path.realpath(os.path.join(config.slots_dir, "good"))
    return build_info.SEQUENCE if good == build_info.program_path() else 0


def load(path: str) -> Setup:
    """The agent's own product from the configuration file `path`; a missing file is all defaults."""
    config, problems = read_config(path)
    product = product_of(config)
    if config.smoke_test:
        product = product._replace(config_argv=("config", "check", "--config", os.path.abspath(path), "--json"))
    return Setup(product, config, problems, path, (product.path("good"), os.path.abspath(path)))


def asked(args: Any) -> Setup:
    """The product that a command line names, the agent itself when it names none.

    Raises:
        Refused: `unknown-product`.
        BadConfig: that product's file cannot be used at all.

    """
    if args.product == build_info.NAME:
        return load(args.config)
    from slotward import product_files  # most commands are about the agent

    return product_files.load(args.config, args.product)
