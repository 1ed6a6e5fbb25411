#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Whether Redis answers, has loaded its data and can still write them: the probe of redis-server.toml.
set -eu
shown=$(redis-cli info persistence)
echo "$shown" | grep -q '^loading:0' || { echo "it is loading its data" >&2; exit 1; }
echo "$shown" | grep -q '^aof_last_write_status:ok' || { echo "it cannot write its append-only file" >&2; exit 1; }
