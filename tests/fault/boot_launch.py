#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks meet through a launcher's PMIx server, or say why they cannot: Open MPI's mpirun, ringrun, MPICH's hydra, a server
that is gone, stopped or killed."""
import os
import re
import shutil
import signal
import subprocess
import time

import harness
from harness import check, clean_env, run, skip, start, stop, tool

JOB = "tests/fault/boot_job"


def found(program):
    return shutil.which(program) or skip(f"{program} is not installed")


def mpirun(n):
    return [found("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "-n", str(n)]


def lines(result):
    return [line for line in result.out.splitlines() if line.startswith("rank ")]


def all_meet(launcher, n):
    with harness.nothing_left():
        r = run([*launcher, tool(JOB), "3", "2"], timeout=60)
    check(r.code == 0, r)
    check(sorted(lines(r)) == [f"rank {i} of {n}: ok" for i in range(n)], r)


def case_mpirun_one_rank():
    all_meet(mpirun(1), 1)


def case_mpirun_four_ranks_three_communicators():
    all_meet(mpirun(4), 4)


def case_ringrun_four_ranks_three_communicators():
    all_meet(ringrun(4), 4)


def ringrun(n):
    return [tool("tools/ringrun/ringrun"), "-n", str(n)]


def missing_rank_is_named(launcher):
    for communicators, fences in ("1", "1"), ("2", "2"):
        r = run([*launcher, tool(JOB), communicators, fences, "absent", "2"], timeout=60,
                env=clean_env(RING_TIMEOUT="1s"))
        said = lines(r)
        check(r.code != 0, r)
        check(any(": deadline passed: rank 2 did not arrive within 1s (RING_TIMEOUT)" in line for line in said), r)
        # The first to give up may end the wait of the others.  The late one finds a job that has fallen apart, and how
        # its launcher puts that is the launcher's business; but it is no success.
        for line in said:
            check(re.fullmatch(r"rank 2 of 4: (deadline passed|a rank died|.* failed).*", line) or
                  re.fullmatch(r"rank [013] of 4: (deadline passed: rank 2 did not arrive within 1s \(RING_TIMEOUT\)|"
                               r"a rank died .*; rank 2 had not arrived)", line), r)


@harness.waits
def case_mpirun_names_the_rank_that_does_not_come():
    missing_rank_is_named(mpirun(4))


@harness.waits
def case_ringrun_names_the_rank_that_does_not_come():
    missing_rank_is_named(ringrun(4))


def case_mpirun_ends_the_job_of_a_dead_rank():
    r = run([*mpirun(3), tool(JOB), "2", "2", "die", "1"], timeout=20)
    check(r.code != 0 and r.seconds < 10, r)
    check(": ok" not in r.out, r)


def case_ringrun_tells_the_others_of_a_dead_rank():
    r = run([*ringrun(3), tool(JOB), "2", "2", "die", "1"], timeout=20)
    check(r.code == 137 and r.seconds < 10, r)
    check(": ok" not in r.out, r)
    for line in lines(r):
        check("a rank ended before all had met" in line and line.endswith("rank 1 had not arrived"), r)


def refused(env, *words, argv=()):
    r = run([*argv, tool(JOB), "1", "1"], timeout=20, env=clean_env(**env))
    check(r.code != 0, r)
    check("cannot join the launcher" in r.out and ": ok" not in r.out, r)
    for word in words:
        check(word in r.out, word, r)


def case_hydra_is_refused_and_named():
    refused({}, "PMI_SIZE=2", "RING_BOOT=single", argv=(found("mpiexec.hydra"), "-n", "2"))


def case_a_server_that_is_gone_is_refused():
    refused({"PMIX_NAMESPACE": "gone", "PMIX_RANK": "1"}, "rank 1 of the PMIx job gone", "RING_BOOT=single")
    refused({"RING_BOOT": "pmix"}, "PMIX_NAMESPACE is not set")


def case_single_wins_over_the_environment():
    r = run([tool(JOB), "2", "2"], env=clean_env(RING_BOOT="single", PMIX_NAMESPACE="gone", PMIX_RANK="1"))
    check(r.code == 0 and lines(r) == ["rank 0 of 1: ok"], r)


def delayed(rank, seconds, folder):
    """Each rank writes what it says and how it ends into a file of its own; one comes late."""
    return ["sh", "-c", f'if [ $PMIX_RANK = {rank} ]; then sleep {seconds}; fi; '
            f'{tool(JOB)} 1 1 > {folder}/$PMIX_RANK 2>&1; echo "exit $?" >> {folder}/$PMIX_RANK']


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def text(path):
    return open(path, encoding="utf8").read() if os.path.exists(path) else ""


def with_launcher_that_gets(number, check_after):
    with harness.folder() as folder:
        # What a launcher that is killed leaves behind is not ours.
        p = start([*mpirun(2), *delayed(1, 3, folder)], env=clean_env(RING_TIMEOUT="2s", TMPDIR=folder),
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            os.kill(p.pid, number)
            check_after(folder)
        finally:
            stop(p)
            wait_for(lambda: not harness.descendants(), 5)
            for pid in harness.descendants():
                os.kill(pid, signal.SIGKILL)


def case_ranks_notice_that_the_launcher_was_killed():
    def after(folder):
        check(wait_for(lambda: "exit" in text(f"{folder}/0"), 2), "rank 0 hangs")
        check("server on this host is gone" in text(f"{folder}/0"), text(f"{folder}/0"))
    with_launcher_that_gets(signal.SIGKILL, after)


def case_a_stopped_launcher_does_not_hold_ranks_for_ever():
    def after(folder):
        check(wait_for(lambda: "exit" in text(f"{folder}/0"), 12), "rank 0 hangs")
        check("did not arrive within 2s" in text(f"{folder}/0"), text(f"{folder}/0"))
    with_launcher_that_gets(signal.SIGSTOP, after)


if __name__ == "__main__":
    harness.main(globals())
