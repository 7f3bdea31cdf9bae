# SPDX-License-Identifier: Apache-2.0
"""One rank is killed at a random point: every survivor gets an error that names it, within a second.

RING_TEST_KILLS sets how often per case (default 12)."""
import concurrent.futures
import os
import random
import re
import signal
import subprocess
import time

import harness
import jobs
from harness import check

KILLS = int(os.environ.get("RING_TEST_KILLS", "12"))
LIMIT_S = 1.0
AT_ONCE = 4


def kill_one(size, mode="loop", **how):
    victim = random.randrange(size)
    with jobs.job(size, mode, "max=400000", **how) as j:
        j.await_text("looping")
        time.sleep(random.random() * 0.05)
        os.kill(j.pid(victim), signal.SIGKILL)
        killed = time.monotonic()
        survivors = [r for r in range(size) if r != victim]
        codes = j.wait(10, survivors)
        took = time.monotonic() - killed
        check(codes == [3] * len(survivors), "exit codes of the survivors", codes, j.story())
        for r in survivors:
            check(f"failed -4 rank {victim} (" in j.text(r), f"rank {r} does not name rank {victim}:", j.story())
        check(took < LIMIT_S, f"{took:.2f} s", j.story())
        return took


def many(name, size, **how):
    times = [kill_one(size, **how) for _ in range(KILLS)]
    print(f"# {name}: {KILLS} of {KILLS}, slowest {max(times):.3f} s", flush=True)


def case_node():
    many("node", 4)


def case_slots_beyond_cores():
    many("slots, 8 ranks", 8, env=jobs.WAYS["slots"])


def case_shm_links():
    many("shm", 4, env=jobs.WAYS["shm"])


def case_tcp():
    many("tcp", 4, env=jobs.WAYS["tcp"])


def case_two_hosts():
    with harness.Net(2) as net:
        many("two hosts", 4, net=net, place=[0, 0, 1, 1])


def case_three_hosts():
    with harness.Net(3) as net:
        many("three hosts", 5, net=net, place=[0, 1, 1, 2, 2])


APART = {r: {"RING_HOST_ID": f"host{r % 3}"} for r in range(5)}  # three hosts, as far as the ranks can tell


def case_splits():
    many("splits", 4, mode="splits")
    many("splits, tcp", 4, mode="splits", env=jobs.WAYS["tcp"])
    many("splits, three hosts", 5, mode="splits", per_rank=APART)


def case_messages_in_groups():
    many("exchanges", 4, mode="exchanges")
    many("exchanges, three hosts", 5, mode="exchanges", per_rank=APART)


def killed_at(call, **how):
    """Rank 1 of 3 dies at its n-th call while it meets and joins the others: true when it had so many."""
    victim = {"LD_PRELOAD": harness.tool("tests/support/libkillat.so"), "KILL_AT": str(call)}
    per_rank = {r: dict(e) for r, e in how.pop("per_rank", {}).items()}
    per_rank.setdefault(1, {}).update(victim)
    with jobs.job(3, "loop", "rounds=3", "max=4000", per_rank=per_rank, env={"RING_TIMEOUT": "3s"}, **how) as j:
        j.wait(12, [1])
        begun = time.monotonic()
        codes = j.wait(12, [0, 2])
        took = time.monotonic() - begun
        if j.processes[1].returncode != -signal.SIGKILL:
            return False
        if "did not arrive" in j.text(0) + j.text(2):
            return True  # it had not come to the others yet
        check(took < 1.6, f"call {call}: {took:.1f} s", j.story())
        check(set(codes) <= {0, 3}, j.story())
        told = [j.text(r) for r, code in zip((0, 2), codes) if code == 3]
        # Who is last to hear may see the first survivor end before it hears why.
        after = ("maker of the ticket", "ended with exit code 3")
        check(all("rank 1" in t or any(a in t for a in after) for t in told), f"call {call}", j.story())
        check(not told or any("rank 1" in t for t in told), f"call {call}", j.story())
        return True


def killed_everywhere(name, **how):
    """Some points at a time: the ranks mostly wait for who is dead."""
    first, last = 3, 60  # before the first it has not shown who it is
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        had = list(pool.map(lambda call: killed_at(call, **how), range(first, last)))
    calls = first + (had + [False]).index(False)
    check(calls > 12, name, "ended at call", calls)
    print(f"# {name}: {calls} points")


@harness.waits
def case_killed_while_it_joins():
    killed_everywhere("one host")
    killed_everywhere("links on one host", per_rank={r: {"RING_TRANSPORT": "tcp"} for r in range(3)})


@harness.waits
def case_killed_while_it_joins_across_hosts():
    killed_everywhere("three hosts", per_rank={r: {"RING_HOST_ID": f"host{r}"} for r in range(3)})
    killed_everywhere("two and one", per_rank={1: {"RING_HOST_ID": "other"}})


@harness.waits
def case_cut_cable():
    """A host that falls silent sends no word of its end: each side names a rank of the other, in the time that the
    kernel's probes take."""
    with harness.Net(2) as net:
        with jobs.job(4, "loop", "max=400000", net=net, place=[0, 0, 1, 1]) as j:
            j.await_text("looping")
            subprocess.run(["ip", "-n", net.names[1], "link", "set", "eth0", "down"], check=True)
            check(j.wait(20) == [3] * 4, j.story())
            for r in range(4):
                # "rank 2 (...) was lost", or "rank 0 (...) lost its connection to rank 2 (...)" of either of this side.
                check(re.search(rf"failed -4 (rank \d \(.* lost its connection to )?rank [{'23' if r < 2 else '01'}] \(", j.text(r)),
                      j.story())


def case_ringrun():
    """Under the launcher the job ends with the killed rank's code, and the survivors have named it."""
    for _ in range(max(3, KILLS // 4)):
        with harness.folder() as path:
            victim = random.randrange(4)
            with open(f"{path}/out", "w") as out:
                p = harness.start([harness.tool("tools/ringrun/ringrun"), "-n", "4", "--tag-output",
                                   harness.tool("tests/support/worker"), "loop", "max=400000"], stdout=out, stderr=out)
            try:
                text = lambda: open(f"{path}/out").read()
                end = time.monotonic() + 20
                while text().count("looping") < 4:
                    check(time.monotonic() < end and p.poll() is None, text())
                    time.sleep(0.01)
                pid = next(int(line.split()[4]) for line in text().splitlines()
                           if line.split()[1:3] == ["joined", str(victim)])
                os.kill(pid, signal.SIGKILL)
                code = p.wait(10)
                check(code == 137, "exit code", code, text())
                check(text().count(f"failed -4 rank {victim} (") == 3, text())
            finally:
                harness.stop(p)


if __name__ == "__main__":
    harness.main(globals())
