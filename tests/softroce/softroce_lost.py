# SPDX-License-Identifier: Apache-2.0
"""The verbs transport when a host says nothing more, neither that its ranks have ended nor that it has."""
import time

import guest
from harness import check, tool
from softroce_paths import Job
from softroce_verbs import ring_perf, verbs

# Seconds in which the other rank knows.  What is sent and not acknowledged is given up after half a second, and half a
# second later it is said who is lost.  Who only waits for the peer has to send something for that.
SILENT = 2


def rank(guests, i, name, mode, *settings):
    """One on each guest, joined by a ticket: nothing else is between them."""
    return Job(guests, [tool("tests/support/worker"), mode, "--uid", f"/share/{name}", "--rank", i, "--size", 2, *settings],
               verbs(), i)


def falls_silent(guests, name, ready, *words):
    """Seconds from when nothing leaves the second guest any more to when the first one's rank has its error."""
    with rank(guests, 0, name, *words) as survivor, rank(guests, 1, name, *words) as other:
        other.await_text(ready)
        survivor.await_text(ready)
        time.sleep(2)
        guests.must("tc qdisc add dev eth0 root netem loss 100%", guest=1)
        begun = time.monotonic()
        try:
            survivor.await_text(r"failed -?\d+ .*rank 1", 40)
            seconds = time.monotonic() - begun
        finally:
            guests.must("tc qdisc del dev eth0 root", guest=1)
        check(survivor.end(10)[0] == 3, survivor.text())
    return seconds


@guest.needs(2)
def case_a_guest_falls_silent(guests):
    """Nothing is answered, and no connection ends."""
    busy = falls_silent(guests, "busy", "looping", "loop", "max=262144")
    print(f"# in the middle of traffic: known after {busy:.2f} s")
    waiting = falls_silent(guests, "waiting", "joined", "lazy", "who=1", "seconds=60")
    print(f"# while the peer is waited for: known after {waiting:.2f} s")
    check(max(busy, waiting) < SILENT, busy, waiting)


@guest.needs(2)
def case_a_guest_is_powered_off(guests):
    """The last one with two.  The job as a whole takes longer, for ringrun waits for its agent there: not seen to here."""
    argv = ring_perf("all_reduce", "-S", "64K", "-n", "1000000", "-c", "0",
                     hosts=("--rsh", guest.RSH, "-H", "guest0:1,guest1:1"))
    with Job(guests, argv, verbs()) as job:
        job.await_text("verbs link to")
        time.sleep(2)
        guests[1].process.kill()
        seconds = job.await_text(r"rank 1 .*lost", 40)
        print(f"# the other rank knows after {seconds:.2f} s")
        check(seconds < SILENT, seconds, job.text()[-3000:])
