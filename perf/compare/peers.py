# SPDX-License-Identifier: Apache-2.0
"""The contenders of compare: how each is started in each place, and the settings that are tried for it.

Every contender measures all sizes of a series in one run and gives {size: statistics}, times in microseconds.  The sweep of
a peer's settings is what its users know to matter; what is tried is printed with the results."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

from cases import PEERS, REDUCING, WIRE, iterations
from places import Failed, Unavailable, clean_env, run, run_together

HERE = os.path.dirname(os.path.realpath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
RINGRUN, PERF, LIMITS = "tools/ringrun/ringrun", "perf/ring_perf/ring_perf", "perf/limits/limits"
LINE = 64
OPENMPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}


class Bench:
    """The programs, found or made once, and the options of this run."""

    def __init__(self, build, folder, quick):
        self.build, self.folder, self.quick, self.programs, self.why = build, folder, quick, {}, {}
        for peer in PEERS:
            try:
                self.programs[peer] = self.compile(peer)
            except Unavailable as reason:
                self.why[peer] = str(reason)

    def compile(self, peer):
        """bench.c with the peer's file; Gloo's is C++."""
        program, perf = f"{self.folder}/bench_{peer}", f"{REPO}/perf"
        flags = ["-O2", "-I", perf, "-I", f"{perf}/ring_perf", "-I", f"{REPO}/include"]
        sources = [f"{HERE}/bench.c", f"{perf}/ring_perf/colls.c"]
        if peer == "gloo":
            objects = [f"{self.folder}/{os.path.basename(s)}.o" for s in sources]
            commands = [["cc", "-std=gnu11", *flags, "-c", s, "-o", o] for s, o in zip(sources, objects)]
            commands += [["c++", "-std=c++17", *flags, f"{HERE}/gloo.cc", *objects, "-lgloo", "-lpthread", "-o", program]]
        else:
            if not shutil.which(f"mpicc.{peer}") or not shutil.which(f"mpirun.{peer}"):
                raise Unavailable(f"mpicc.{peer} and mpirun.{peer} are not both installed")
            commands = [[f"mpicc.{peer}", "-std=gnu11", *flags, *sources, f"{HERE}/mpi.c", "-o", program]]
        for argv in commands:
            result = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
            if result.returncode:
                lines = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
                raise Unavailable(f"its program does not compile: {lines[0] if lines else argv}")
        return program

    def tool(self, path):
        full = os.path.join(self.build, path)
        if not os.access(full, os.X_OK):
            raise Unavailable(f"{path} is not built in {self.build}")
        return full

    def plan(self, s, scale=1):
        return ",".join(f"{int(size * scale)}:{iterations(s, size, self.quick)}" for size in s.sizes)

    # ---- ours ----

    def ring(self, s, where, memory="malloc", dtype="float", scale=1, **env):
        """scale: bytes of an element against a float's, so that the number of elements stays."""
        out = f"{self.folder}/ring.json"
        with contextlib.suppress(OSError):
            os.unlink(out)
        run([*where.prefix, *cores(s), self.tool(RINGRUN), "-n", s.ranks, *where.ringrun, self.tool(PERF), s.coll, "-S",
             self.plan(s, scale), "-c", 0, "-a", 3, "-C", int(s.cold), "-d", dtype, "-J", out,
             *(["-M", memory] if memory != "malloc" else [])],
            clean_env(**where.ring_env, **env))
        with open(out, encoding="utf8") as file:
            rows = json.load(file)["results"]
        # The peers broadcast in place, without a copy on root; so the same is taken of ours.
        side = "in_place" if s.coll == "broadcast" else "out_of_place"
        return {size: {**row[side], "how": f"{row['transport']}/{row['algorithm']}"}
                for size, row in zip(s.sizes, rows)}

    # ---- peers ----

    def program(self, peer):
        if peer not in self.programs:
            raise Unavailable(self.why[peer])
        return self.programs[peer]

    def mpi(self, peer, s, where, options, **env):
        out = run([*where.prefix, *cores(s), f"mpirun.{peer}", "-n", s.ranks, *options, self.program(peer), s.coll,
                   int(s.cold), self.plan(s)], clean_env(**env))
        return statistics_of(s, out)

    def openmpi(self, s, where, *options):
        crowd = ["--mca", "mpi_yield_when_idle", "1"] if s.ranks > (os.cpu_count() or 1) or s.place == "full" else []
        return self.mpi("openmpi", s, where, ["--oversubscribe", *where.openmpi, *crowd, *options], **OPENMPI_ENV)

    def mpich(self, s, where, **env):
        return self.mpi("mpich", s, where, where.mpich, **where.mpich_env, **env)

    def gloo(self, s, where, algorithm="ring"):
        program = self.program("gloo")
        with tempfile.TemporaryDirectory(dir=self.folder) as store:
            jobs = [([*where.rank_prefix(rank), *cores(s), program, s.coll, int(s.cold), self.plan(s)],
                     clean_env(GLOO_RANK=rank, GLOO_SIZE=s.ranks, GLOO_STORE=store, GLOO_IFACE=where.interface,
                               GLOO_ALGO=algorithm)) for rank in range(s.ranks)]
            return statistics_of(s, run_together(jobs)[0])

    # ---- the machine's own bounds ----

    def limit(self, s, where, bounds):
        """bounds: {names of bounds of perf/limits: sizes}; of several for one size the lowest counts."""
        best = {}
        for names, sizes in bounds.items():
            if not sizes:
                continue
            out = run([*where.prefix, self.tool(LIMITS), "--json", "-o", names, "-s", ",".join(map(str, sizes)),
                       *where.limits], clean_env())
            for row in json.loads(out)["limits"]:
                best[row["bytes"]] = min(best.get(row["bytes"], row["time"]), row["time"])
        return {size: {"steady": value} for size, value in best.items()}

    # ---- a whole job by the clock ----

    def start(self, argv, env):
        begun = time.monotonic()
        run(argv, env)
        return {8: {"steady": (time.monotonic() - begun) * 1e6}}

    def start_ring(self, s):
        return self.start([self.tool(RINGRUN), "-n", s.ranks, self.tool(PERF), "all_reduce", "-S", "8:1", "-w", 0, "-c", 0],
                          clean_env())

    def start_mpi(self, peer, s, options, **env):
        return self.start([f"mpirun.{peer}", *options, "-n", s.ranks, self.program(peer), "all_reduce", 0, "8:1"],
                          clean_env(**env))


def statistics_of(s, text):
    """One JSON line for each size; null for what the library does not have."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{") or line == "null"]
    if len(lines) != len(s.sizes):
        raise Failed(f"{len(lines)} lines of results instead of {len(s.sizes)}: {text[-500:]}")
    if None in lines:
        raise Unavailable(f"{s.coll} is not in this library")
    return dict(zip(s.sizes, lines))


def cores(s):
    """The figures of "full" are for two processors; on a larger machine use only two."""
    return ["taskset", "-c", "0,1"] if s.place in ("full", "start") and (os.cpu_count() or 1) > 2 else []


# ---- who runs in a series: name -> function, in the order of a round ----

def ring_variants(bench, s, where):
    if s.name.endswith("-types"):
        return {"ring": lambda: bench.ring(s, where),
                **{f"ring:{t}": lambda t=t: bench.ring(s, where, dtype=t, scale=0.5) for t in ("bfloat16", "float16")}}
    if s.place == "slow":
        return {f"ring:{name}": lambda a=algo: bench.ring(s, where, RING_ALGO=f"all_reduce@{a}")
                for name, algo in (("hier", "hier"), ("flat", "ring"))}
    found = {"ring": lambda: bench.ring(s, where)}
    if s.place in ("shm", "full") and s.coll != "barrier":
        found["ring:registered"] = lambda: bench.ring(s, where, memory="registered")
    if s.coll == "all_reduce" and s.place in ("shm", "tcp") and not s.cold:
        found["ring:same-bits"] = lambda: bench.ring(s, where, RING_DETERMINISTIC=1)
    return found


def openmpi_variants(bench, s, where):
    tuned = lambda number: ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", number]
    copy = ["--mca", "btl_vader_single_copy_mechanism", "none"]
    found = {"openmpi": []}
    if s.place in ("shm", "full"):
        found = {"openmpi:cma": [], "openmpi:copy": copy}
    if s.coll == "all_reduce":
        found["openmpi:doubling"], found["openmpi:ring"] = tuned("3"), tuned("4")
        found["openmpi:rabenseifner"] = tuned("6")
    return {name: lambda o=options: bench.openmpi(s, where, *o) for name, options in found.items()}


def mpich_variants(bench, s, where):
    found = {"mpich": {}}
    if s.place in ("shm", "full") and s.coll in ("all_reduce", "reduce", "broadcast", "barrier"):
        name = {"all_reduce": "ALLREDUCE", "reduce": "REDUCE", "broadcast": "BCAST", "barrier": "BARRIER"}[s.coll]
        found["mpich:release"] = {f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "release_gather"}
    elif s.coll == "all_reduce":
        found["mpich:rabenseifner"] = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "reduce_scatter_allgather"}
    return {name: lambda e=env: bench.mpich(s, where, **e) for name, env in found.items()}


def gloo_variants(bench, s, where):
    algorithms = ("ring", "bcube", "halving", "chunked") if s.coll == "all_reduce" else ("ring",)
    return {f"gloo:{a}" if len(algorithms) > 1 else "gloo": lambda a=a: bench.gloo(s, where, a) for a in algorithms}


def bounds_of(s):
    if s.coll != "all_reduce" or s.name.endswith("-types") or s.ranks != 2:
        return {}
    if s.place != "shm":
        return {"tcp-sum": s.sizes}
    small = [size for size in s.sizes if size <= LINE]
    return {"line": small, "shared-sum,shared-sum-nt": [size for size in s.sizes if size not in small]}


def contenders(bench, s, where):
    if s.place == "start":
        return {"ring": lambda: bench.start_ring(s),
                "openmpi": lambda: bench.start_mpi("openmpi", s, ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
                                                   **OPENMPI_ENV),
                "mpich": lambda: bench.start_mpi("mpich", s, [])}
    found = ring_variants(bench, s, where)
    if s.place == "slow" or s.name.endswith("-types"):
        return found
    found |= openmpi_variants(bench, s, where) | mpich_variants(bench, s, where)
    if s.place != "shm":  # it has no way but sockets
        found |= gloo_variants(bench, s, where)
    bounds = bounds_of(s)
    if bounds:
        found["limit"] = lambda: bench.limit(s, where, bounds)
    return found


def known_limit(s):
    """What a wire of 1 Gbit/s for each rank allows: 2 (n - 1) / n of the buffer leaves each."""
    if not s.place.startswith("wire"):
        return {}
    return {size: 2 * (s.ranks - 1) / s.ranks * size / WIRE * 1e6 for size in s.sizes}


def reduces(s):
    return s.coll in REDUCING
