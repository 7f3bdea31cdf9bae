# SPDX-License-Identifier: Apache-2.0
"""What compare measures and what it asks for: series (one collective in one place, over sizes, by all contenders in turn)
and targets (named figures made of them, each with a floor and a goal).

A contender is "ring" or a peer, with its variant after a colon: "ring:registered", "openmpi:cma".  The limit of the machine
is a contender too."""
import collections
import re

K, M = 1 << 10, 1 << 20
WIRE = 119e6  # bytes of payload a second at 1 Gbit/s and an MTU of 1500

PLACES = {
    "shm": "one host, shared memory",
    "full": "8 ranks on 2 processors of one host",
    "tcp": "one host, TCP over loopback, cubic for all",
    "veth": "2 network namespaces joined by a veth pair, cubic for all",
    "wire4": "4 network namespaces on a switch, 1 Gbit/s each",
    "wire6": "6 network namespaces on a switch, 1 Gbit/s each",
    "slow": "2 network namespaces of 2 ranks each, 200 Mbit/s between them",
    "start": "from the launcher's start to the end of a job that does one all-reduce of 8 bytes",
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")
BLOCKS = ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter",
          "reduce_scatterv", "all_gatherv", "all_to_allv", "gatherv", "scatterv")
OTHERS = ("reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "barrier",
          "reduce_scatterv", "all_gatherv", "all_to_allv", "gatherv", "scatterv", "sendrecv")
PEERS = ("openmpi", "mpich", "gloo")

# sizes: what the call's larger buffer holds; 8 stands for 8 bytes a block in the collectives of blocks.
# wide: measured only with --wide, as no target needs it.
Series = collections.namedtuple("Series", "name place ranks coll sizes cold wide")


def sizes_for(coll, ranks, wanted):
    if coll == "barrier":
        return (8,)
    return tuple(8 * ranks if s == 8 and coll in BLOCKS else s for s in wanted)


def series(place, ranks, coll, sizes, cold=False, wide=False, tag=""):
    name = f"{place}-{ranks}-{coll}" + ("-cold" if cold else "") + (f"-{tag}" if tag else "")
    return Series(name, place, ranks, coll, sizes_for(coll, ranks, sizes), cold, wide)


SWEEP = (8, 128, 2 * K, 16 * K, 64 * K, 256 * K, M, 8 * M, 64 * M)
SHORT = (8, 2 * K, 64 * K, M, 64 * M)
TRIPLE = (8, 64 * K, 16 * M)
SERIES = [
    series("shm", 2, "all_reduce", SWEEP),
    series("shm", 2, "all_reduce", (64 * K, M, 64 * M), cold=True),
    series("shm", 2, "all_reduce", (64 * M,), tag="types"),
    series("shm", 4, "all_reduce", SHORT, wide=True),
    series("full", 8, "all_reduce", TRIPLE),
    *[series("shm", ranks, coll, SHORT) for ranks in (2, 4) for coll in OTHERS],
    *[series("shm", ranks, coll, (64 * K, 64 * M), cold=True, wide=True) for ranks in (2, 4) for coll in OTHERS[:-1]
      if coll != "barrier"],
    *[series("full", 8, coll, TRIPLE, wide=True) for coll in OTHERS],
    series("tcp", 2, "all_reduce", SWEEP),
    series("tcp", 2, "all_reduce", (64 * K, 64 * M), cold=True, wide=True),
    series("tcp", 4, "all_reduce", SHORT, wide=True),
    *[series("tcp", ranks, coll, SHORT, wide=True) for ranks in (2, 4) for coll in OTHERS],
    series("veth", 2, "all_reduce", SHORT),
    *[series("veth", 2, coll, SHORT, wide=True) for coll in OTHERS],
    series("wire4", 4, "all_reduce", (16 * M,)),
    series("wire6", 6, "all_reduce", (16 * M,)),
    series("slow", 4, "all_reduce", (4 * M,)),
    series("start", 16, "all_reduce", (8,)),
]

# ---- iterations: about as much time for every size, guessed from what such machines do ----

LATENCY = {"shm": 0.5, "full": 15, "tcp": 30, "veth": 30, "wire4": 200, "wire6": 300, "slow": 500, "start": 1}  # us
PER_BYTE = {"shm": 3e-4, "full": 1.2e-3, "tcp": 1.2e-3, "veth": 1.2e-3, "wire4": 1.26e-2, "wire6": 1.4e-2, "slow": 6.5e-2,
            "start": 0}


def iterations(s, size, quick):
    crowd = max(1, s.ranks / 2) ** 2 if s.place in ("shm", "tcp") else 1
    each = LATENCY[s.place] * crowd + PER_BYTE[s.place] * max(1, s.ranks / 2) * size
    budget = 20e3 if quick else 80e3
    least = 1 if s.place == "start" else 3 if s.place in ("wire4", "wire6", "slow") else 5
    return int(max(least, min(20000, budget / each)))


# ---- targets ----

# kind: ratio  best peer's time / ours              time   ours / the machine's limit (less is better)
#       share  limit / ours, in percent             self   ours / other of ours (less is better)
#       cpu    peers' processor time / ours         worst  the least ratio of many cells
Target = collections.namedtuple("Target", "name what kind cells ours floor goal")
Cell = collections.namedtuple("Cell", "series size")
LESS = ("time", "self")  # kinds in which a smaller figure is the better one


def label(size):
    for unit, name in ((M, "MiB"), (K, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def targets():
    shm, cold, types = "shm-2-all_reduce", "shm-2-all_reduce-cold", "shm-2-all_reduce-types"
    found = [
        Target("shm-8B", "2 ranks, 8 B, against the best MPI", "ratio", [Cell(shm, 8)], "ring", 1.3, 2),
        Target("shm-8B-limit", "2 ranks, 8 B, time as a multiple of the bare cache-line exchange", "time", [Cell(shm, 8)],
               "ring", 1.7, 1.15),
    ]
    for size, where, plain, registered in ((64 * K, shm, (1.6, 2.2), (4, 8)), (M, shm, (1.3, 1.6), (3, 4.5)),
                                           (64 * M, cold, (1.5, 1.8), (3.5, 5))):
        short, heat = label(size).replace(" ", "").replace("iB", ""), ", cold" if where == cold else ""
        found += [
            Target(f"shm-{short}", f"2 ranks, {label(size)}{heat}, against the best MPI", "ratio", [Cell(where, size)], "ring",
                   *plain),
            Target(f"shm-{short}-registered", f"2 ranks, {label(size)}{heat}, registered, against the best MPI", "ratio",
                   [Cell(where, size)], "ring:registered", *registered),
        ]
    found += [Target("shm-share", "registered, 64 KiB to 64 MiB: least share of the add-and-store limit", "share",
                     [Cell(shm, s) for s in SWEEP if s >= 64 * K], "ring:registered", 75, 90)]
    found += [Target(f"shm-{t}", f"64 Mi bytes of float in elements, as {t}: time against float", "self",
                     [Cell(types, 64 * M)], f"ring:{t}", 0.65, 0.53) for t in ("bfloat16", "float16")]
    found += [Target(f"full-{label(s).replace(' ', '').replace('iB', '')}",
                     f"8 ranks on 2 processors, {label(s)}, against the best peer that finishes", "ratio",
                     [Cell("full-8-all_reduce", s)], "ring", *bar)
              for s, bar in zip(TRIPLE, ((2, 3), (2, 4), (1.5, 3)))]
    found += [Target(f"others-{ranks}", f"every other collective, {ranks} ranks, 8 B, 64 KiB, 64 MiB: the worst cell", "worst",
                     [Cell(s.name, size) for s in SERIES if s.place == "shm" and s.ranks == ranks and s.coll in OTHERS
                      and s.coll != "sendrecv" and not s.cold for size in s.sizes if size in (8, 8 * ranks, 64 * K, 64 * M)], "ring", 1.0, 1.5)
              for ranks in (2, 4)]
    for place in ("tcp", "veth"):
        for size in (8, 64 * K, 64 * M):
            short, cell = label(size).replace(" ", "").replace("iB", ""), [Cell(f"{place}-2-all_reduce", size)]
            found += [Target(f"{place}-{short}", f"{place}, 2 ranks, {label(size)}, against the best peer", "ratio", cell,
                             "ring", 1.2, 1.6),
                      Target(f"{place}-{short}-share", f"{place}, 2 ranks, {label(size)}: share of the bare exchange that adds",
                             "share", cell, "ring", 75, 92)]
    found += [Target(f"wire-{n}", f"{n} namespaces at 1 Gbit/s, 16 MiB: share of the wire bound", "share",
                     [Cell(f"wire{n}-{n}-all_reduce", 16 * M)], "ring", 95, 98) for n in (4, 6)]
    found += [
        Target("slow-link", "2 hosts of 2 ranks, 200 Mbit/s between: hierarchical against the flat ring", "flat",
               [Cell("slow-4-all_reduce", 4 * M)], "ring:hier", 1.3, 1.6),
        Target("processor", "processor time for a GiB reduced over tcp, against the better of Open MPI and Gloo", "cpu",
               [Cell("tcp-2-all_reduce", 64 * M)], "ring", 1.0, 2),
        Target("start-16", "16 ranks on 2 processors, start to first all-reduce, against mpirun and MPI_Init", "ratio",
               [Cell("start-16-all_reduce", 8)], "ring", 1.0, 2),
    ]
    return found


def chosen(pattern, wide):
    """Series and targets that a pattern names; a target brings the series that it needs."""
    picked = [t for t in targets() if re.search(pattern, t.name)]
    needed = {c.series for t in picked for c in t.cells} if pattern else set()
    found = [s for s in SERIES if s.name in needed or (re.search(pattern, s.name) and (wide or pattern or not s.wide))]
    names = {s.name for s in found}
    return found, [t for t in targets() if all(c.series in names for c in t.cells)]
