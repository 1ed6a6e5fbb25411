# SPDX-License-Identifier: GPL-3.0-or-later
"""Play every file of a directory through one target: replay.py TARGET DIRECTORY; the slowest and the largest, as JSON."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import tracemalloc
from typing import Dict, List, Union

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("plugins/module_utils", "agent/src", "tests")]

from fuzz import targets

MAX_GROWTH = 64 << 20


def measure(one: targets.Target, data: bytes) -> Dict[str, float]:
    """Seconds and peak bytes of one call; raises Find when it is too slow or takes too much."""
    began = time.process_time()
    one(data)
    seconds = time.process_time() - began
    tracemalloc.start()
    try:
        one(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    targets.must(seconds < targets.MAX_SECONDS, "%.2f s for %d bytes" % (seconds, len(data)))
    targets.must(peak < MAX_GROWTH, "%d bytes of memory for %d bytes" % (peak, len(data)))
    return {"seconds": seconds, "peak": peak}


def main(argv: List[str]) -> int:
    """Play them."""
    one = targets.TARGETS[argv[0]]
    answer: Dict[str, Union[int, float]] = {"inputs": 0, "slowest_ms": 0.0, "largest_kib": 0}
    for path in sorted(pathlib.Path(argv[1]).iterdir()):
        found = measure(one, path.read_bytes())
        answer["inputs"] += 1
        answer["slowest_ms"] = round(max(answer["slowest_ms"], found["seconds"] * 1000), 3)
        answer["largest_kib"] = max(answer["largest_kib"], int(found["peak"]) >> 10)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
