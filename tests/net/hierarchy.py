#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts with several ranks and a slow link between them: right sums by every algorithm, and reducing inside first pays."""
import re

import harness
import jobs
from harness import check

PLACES = [0, 1, 0, 1]


def seconds(net, algorithm):
    outs, _ = jobs.finishes(4, "timed", f"bytes={4 << 20}", "rounds=2", net=net, place=PLACES,
                            env={"RING_ALGO": f"all_reduce@{algorithm}"})
    return max(float(re.search(r"took ([\d.]+) s", text).group(1)) for text in outs)


def case_right_sums_by_every_algorithm():
    with harness.Net(2) as net:
        for algorithm in ("ring", "doubling", "rabenseifner", "tree", "hier", "direct", "two_shot"):
            jobs.finishes(5, "sums", net=net, place=[0, 1, 0, 1, 1], env={"RING_ALGO": f"all_reduce@{algorithm}"})


def case_inside_first_beats_the_flat_ring():
    """In theory a host sends 2 (h - 1) / h = 1 instead of 2 (n - 1) / n = 1.5 times the buffer; what copying
    inside costs on two processors comes off that."""
    with harness.Net(2, rate="200mbit") as net:
        times = [(seconds(net, "ring"), seconds(net, "hier")) for _ in range(3)]  # others may use the processors
        ring, hier = (min(column) for column in zip(*times))
        print(f"ring {ring:.3f} s, hier {hier:.3f} s, ratio {ring / hier:.2f}")
        check(ring / hier >= 1.2, "ring", ring, "s, hier", hier, "s")


if __name__ == "__main__":
    harness.main(globals())
