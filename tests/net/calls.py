# SPDX-License-Identifier: Apache-2.0
"""System calls of the hot path, counted by strace: a small operation costs one call each way, and nothing else."""
import os
import re
import shutil
import subprocess

import harness
import jobs
from harness import check

FEW, MANY = 200, 1200  # operations of two runs, so that what is before and after them does not count
TRANSFERS = ("sendto", "sendmsg", "writev", "recvfrom", "recvmsg", "readv")
QUIET = ("sched_yield", "epoll_wait", "poll", "ppoll", "futex", "restart_syscall")  # of waiting, as the machine has it


def traced():
    strace = shutil.which("strace")
    if not strace:
        harness.skip("strace is not installed")
    if subprocess.run([strace, "-f", "-o", "/dev/null", "true"], capture_output=True).returncode:
        harness.skip("strace may not trace here")
    return strace


def calls(strace, operations, size):
    """Rank 0's calls that did something, and those that only found nothing, by name."""
    with harness.folder() as path:
        log = f"{path}/calls"
        # of the thread that calls the library only: the background thread has its own business
        job = jobs.Job(path, 2, "timed", f"bytes={size}", f"rounds={operations}", env={"RING_TRANSPORT": "tcp"},
                       prefix={0: [strace, "-o", log]})
        try:
            check(job.wait(60) == [0, 0], job.story())
        finally:
            job.close()
        done, empty = {}, {}
        with open(log, encoding="ascii", errors="replace") as f:
            for line in f:
                found = re.match(r"(\w+)\(.*= (-?\d+|\?)", line)
                if found:
                    kind = empty if "EAGAIN" in line else done
                    kind[found.group(1)] = kind.get(found.group(1), 0) + 1
        return done, empty


def per_operation(strace, size):
    few, many = calls(strace, FEW, size)[0], calls(strace, MANY, size)[0]
    return {name: (many.get(name, 0) - few.get(name, 0)) / (MANY - FEW) for name in many}


def too_many(per):
    """What is wrong with the calls of an operation; empty: nothing."""
    sends = sum(per.get(n, 0) for n in TRANSFERS[:3])
    receives = sum(per.get(n, 0) for n in TRANSFERS[3:])
    others = {n: p for n, p in per.items() if n not in TRANSFERS and n not in QUIET and p > 0.02}
    wrong = [] if 0.98 <= sends <= 1.02 else [f"{sends} sends"]
    # Fewer when the peer is an operation ahead: then one call brings the bytes of both.
    wrong += [] if 0.4 <= receives <= 1.05 else [f"{receives} receives"]
    return wrong + ([f"other calls {others}"] if others else [])


def case_congestion_control_comes_first():
    """Before a connection is made or taken: one that was begun with another is paced for ever, if that paces."""
    strace = traced()
    with harness.folder() as path:
        logs = [f"{path}/calls{rank}" for rank in range(2)]
        tracers = {r: [strace, "-f", "-e", "trace=connect,accept4,listen,setsockopt", "-o", logs[r]] for r in range(2)}
        env = {"RING_TRANSPORT": "tcp", "RING_TCP_CONGESTION": "reno"}
        job = jobs.Job(path, 2, "sums", env=env, prefix=tracers)
        try:
            check(job.wait(60) == [0, 0], job.story())
        finally:
            job.close()
        for log in logs:
            with open(log, encoding="ascii", errors="replace") as f:
                found = re.findall(r"(setsockopt|connect|listen)\((\d+), (.*)", f.read())
            chosen = {fd for name, fd, rest in found if "TCP_CONGESTION" in rest}
            listeners = {fd for name, fd, rest in found if name == "listen"}
            check(chosen & listeners, "nobody listens with it", found)
            for fd in chosen - listeners:
                order = [name for name, at, rest in found if at == fd and (name == "connect" or "CONGESTION" in rest)]
                check("connect" not in order or order[0] == "setsockopt", "connected before it was chosen", fd, found)


def case_one_call_each_way():
    """By the best of three: on a busy machine a message comes in pieces now and then, but a call too many of ours comes with
    every message of every run."""
    strace = traced()
    for size in (8, 256, 8192):
        tries = []
        while len(tries) < 3 and (not tries or too_many(tries[-1])):
            tries.append(per_operation(strace, size))
        check(not too_many(tries[-1]), size, "bytes, in an operation:", *(too_many(t) for t in tries), tries)


def case_large_calls():
    """A large one takes few calls: at least 32 KiB each on average, both ways together."""
    strace, size = traced(), 16 << 20
    few, many = calls(strace, 2, size)[0], calls(strace, 6, size)[0]
    n = sum(many.get(name, 0) - few.get(name, 0) for name in TRANSFERS) / 4
    check(n <= 2 * size / (32 << 10), n, "calls for", size, "bytes each way")


if __name__ == "__main__":
    harness.main(globals())
