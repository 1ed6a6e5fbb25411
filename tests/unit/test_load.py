# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures that wrk prints, as wrk 4.1.0 printed them."""

from __future__ import annotations

import pytest
from support import load

CALM = """Running 1m test @ http://10.0.0.2:80/
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   312.15us  520.10us  10.32ms   96.01%
    Req/Sec     9.50k     1.22k   11.02k    74.00%
  77960 requests in 8.21s, 19.33MB read
Requests/sec:   9495.73
Transfer/sec:      2.35MB
"""
CUT = """  405 requests in 5.01s, 55.16KB read
  Socket errors: connect 3, read 766, write 1, timeout 2
  Non-2xx or 3xx responses: 7
Requests/sec:     80.84
"""


def test_what_wrk_says() -> None:
    """What went wrong is told in lines that a calm run does not have."""
    assert load.parse_wrk(CALM) == load.Wrked(77960, 0, 0, 0)
    assert load.parse_wrk(CUT) == load.Wrked(405, 7, 770, 2)
    with pytest.raises(ValueError, match="unable to connect"):
        load.parse_wrk("unable to connect to 10.0.0.2:80 Connection refused\n")
