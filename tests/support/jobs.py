# SPDX-License-Identifier: Apache-2.0
"""Jobs of worker processes (worker.c): by unique id, on this host or on namespaces, without a launcher in between."""
import contextlib
import re
import subprocess
import time

import harness


class Job:
    """`size` ranks; rank r runs on host place[r] of a harness.Net, or here when there is none.  Output goes to files, so
    that a rank never blocks on a pipe that nobody reads."""

    def __init__(self, path, size, mode, *settings, present=None, env=None, net=None, place=None, per_rank=None,
                 program=None, prefix=None):
        """present: the ranks that come at all.  prefix: by rank, a command in front of the program."""
        self.path, self.ranks = path, list(range(size) if present is None else present)
        self.processes = {}
        program = program or harness.tool("tests/support/worker")
        for rank in self.ranks:
            where = (net.inside(place[rank]) if net else []) + (prefix or {}).get(rank, [])
            more = {**(env or {}), **((per_rank or {}).get(rank, {}))}
            with open(self.file(rank, "out"), "w") as out, open(self.file(rank, "err"), "w") as err:
                argv = [*where, program, mode, "--uid", f"{path}/ticket", "--rank", str(rank), "--size", str(size),
                        *settings]
                self.processes[rank] = harness.start(argv, harness.clean_env(**more), stdin=subprocess.DEVNULL,
                                                     stdout=out, stderr=err)

    def file(self, rank, kind):
        return f"{self.path}/{kind}.{rank}"

    def text(self, rank, kind="out"):
        with open(self.file(rank, kind), encoding="utf8", errors="replace") as f:
            return f.read()

    def await_text(self, word, ranks=None, seconds=30):
        end = time.monotonic() + seconds
        for rank in self.ranks if ranks is None else ranks:
            while word not in self.text(rank):
                harness.check(time.monotonic() < end, f"rank {rank} never said '{word}'", self.story())
                harness.check(self.processes[rank].poll() is None or word in self.text(rank),
                              f"rank {rank} ended before it said '{word}'", self.story())
                time.sleep(0.01)

    def pid(self, rank):
        return int(re.search(r"joined \d+ \d+ (\d+)", self.text(rank)).group(1))

    def wait(self, seconds=60, ranks=None):
        """Exit codes; still running is a failure."""
        end = time.monotonic() + seconds
        ranks = self.ranks if ranks is None else ranks
        for rank in ranks:
            try:
                self.processes[rank].wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} still ran after {seconds} s\n{self.story()}") from None
        return [self.processes[rank].returncode for rank in ranks]

    def story(self):
        return "\n".join(f"--- rank {r} (exit {self.processes[r].poll()})\n{self.text(r)[-1500:]}"
                         f"{self.text(r, 'err')[-1500:]}" for r in self.ranks)

    def close(self):
        for process in self.processes.values():
            harness.stop(process)


@contextlib.contextmanager
def job(size, mode, *settings, **how):
    with harness.folder() as path:
        j = Job(path, size, mode, *settings, **how)
        try:
            yield j
        finally:
            j.close()


def finishes(size, mode, *settings, seconds=60, **how):
    """A job in which every rank ends with exit code 0; its outputs."""
    with job(size, mode, *settings, **how) as j:
        codes = j.wait(seconds)
        harness.check(codes == [0] * size, "exit codes", codes, j.story())
        return [j.text(r) for r in range(size)], [j.text(r, "err") for r in range(size)]


# The ways by which data can go: name -> settings.
WAYS = {
    "node": {},
    "slots": {"RING_CMA": "off"},
    "shm": {"RING_TRANSPORT": "shm", "RING_ALGO": "ring"},
    "tcp": {"RING_TRANSPORT": "tcp"},
}
