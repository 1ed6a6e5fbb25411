# SPDX-License-Identifier: GPL-3.0-or-later
"""The third-party daemons of examples/: for each suite the package that is installed, and a later version of the same program.

The later one is the next suite's own program where that runs, and is built from the source package of a later suite where it does not.
"""

from __future__ import annotations

import pathlib
from typing import Mapping, NamedTuple, Tuple

from support import debian

# without the collector of software RAID, which wants another version of a library than Debian has
GO = """
mkdir -p /out/go/src/github.com/prometheus
ln -s "$PWD" /out/go/src/github.com/prometheus/node_exporter
cd /out/go/src/github.com/prometheus/node_exporter
version=$(cat VERSION)
# as Debian's own changes have it
grep -rl --include='*.go' github.com/alecthomas/kingpin/v2 . | xargs sed -i 's,github.com/alecthomas/kingpin/v2,gopkg.in/alecthomas/kingpin.v2,'
GOPATH=/out/go:/usr/share/gocode GO111MODULE=off GOFLAGS=-p=1 CGO_ENABLED=0 GOCACHE=/out/cache go build -tags nomdadm -o /out/program \\
    -ldflags "-X github.com/prometheus/common/version.Version=$version"
"""
NGINX = """
./configure --prefix=/usr/share/nginx --sbin-path=/usr/sbin/nginx --conf-path=/etc/nginx/nginx.conf --pid-path=/run/nginx.pid \\
    --error-log-path=/var/log/nginx/error.log --http-log-path=/var/log/nginx/access.log --lock-path=/var/lock/nginx.lock \\
    --modules-path=/usr/lib/nginx/modules --http-client-body-temp-path=/var/lib/nginx/body \\
    --http-proxy-temp-path=/var/lib/nginx/proxy --http-fastcgi-temp-path=/var/lib/nginx/fastcgi \\
    --http-uwsgi-temp-path=/var/lib/nginx/uwsgi --http-scgi-temp-path=/var/lib/nginx/scgi \\
    --with-compat --with-threads --with-http_ssl_module --with-http_v2_module --with-http_stub_status_module --with-cc-opt=-O1
make
cp objs/nginx /out/program
"""
REDIS = """
make -C src MALLOC=libc USE_SYSTEMD=yes OPTIMIZATION=-O1 redis-server
cp src/redis-server /out/program
"""


class Daemon(NamedTuple):
    """One daemon of Debian's."""

    packages: Tuple[str, ...]
    """What is installed on the host."""
    package: str
    """The package that the later program is taken from."""
    path: str
    """Where that program lies in it."""
    builds: Mapping[str, debian.Build]
    """For the suites on which the next one's program does not run: how it is made."""
    versions: Mapping[str, Tuple[str, str]]
    """By suite: what is installed, and the later one; a mirror that has moved on has others with the same first two numbers."""

    def installed(self, suite: str) -> pathlib.Path:
        """A directory with the packages of the suite."""
        return debian.packages(suite, self.packages)

    def later(self, suite: str) -> pathlib.Path:
        """The later program, which runs on the suite."""
        if suite in self.builds:
            return debian.built(suite, self.builds[suite])
        return debian.unpacked(debian.NEXT[suite], self.package) / self.path


GO_NEEDS = (
    "golang-any",
    "golang-dbus-dev",
    "golang-github-beevik-ntp-dev",
    "golang-github-coreos-go-systemd-dev",
    "golang-github-dennwc-btrfs-dev",
    "golang-github-ema-qdisc-dev",
    "golang-github-hashicorp-go-envparse-dev",
    "golang-github-hodgesds-perf-utils-dev",
    "golang-github-jsimonetti-rtnetlink-dev",
    "golang-github-mattn-go-xmlrpc-dev",
    "golang-github-mdlayher-ethtool-dev",
    "golang-github-mdlayher-netlink-dev",
    "golang-github-mdlayher-wifi-dev",
    "golang-github-opencontainers-selinux-dev",
    "golang-github-prometheus-client-golang-dev",
    "golang-github-prometheus-client-model-dev",
    "golang-github-prometheus-common-dev",
    "golang-github-prometheus-community-go-runit-dev",
    "golang-github-prometheus-exporter-toolkit-dev",
    "golang-github-prometheus-procfs-dev",
    "golang-github-safchain-ethtool-dev",
    "golang-golang-x-sys-dev",
    "golang-gopkg-alecthomas-kingpin.v2-dev",
)
NGINX_NEEDS = ("libpcre2-dev", "libssl-dev", "zlib1g-dev")
REDIS_NEEDS = ("libssl-dev", "libsystemd-dev", "pkg-config")

NODE_EXPORTER = Daemon(
    ("prometheus-node-exporter",),
    "prometheus-node-exporter",
    "usr/bin/prometheus-node-exporter",
    # linked without the C library, which bullseye has too old: so it is built where its source belongs, and forky's is the newest
    {"bullseye": debian.Build("prometheus-node-exporter", GO_NEEDS, GO, tree="forky", source_suite="forky")},
    {"bullseye": ("1.1.2+ds", "1.11.1"), "bookworm": ("1.5.0", "1.9.0"), "trixie": ("1.9.0", "1.11.1")},
)
NGINX_LIGHT = Daemon(
    ("nginx-light",),
    "nginx",
    "usr/sbin/nginx",
    {"bullseye": debian.Build("nginx", NGINX_NEEDS, NGINX)},
    {"bullseye": ("1.18.0", "1.22.1"), "bookworm": ("1.22.1", "1.26.3"), "trixie": ("1.26.3", "1.30.6")},
)
REDIS_SERVER = Daemon(
    ("redis-server",),
    "redis-tools",
    "usr/bin/redis-check-rdb",
    {suite: debian.Build("redis", REDIS_NEEDS, REDIS) for suite in debian.NEXT},
    {"bullseye": ("6.0.16", "7.0.15"), "bookworm": ("7.0.15", "8.0.2"), "trixie": ("8.0.2", "8.0.6")},
)
