# SPDX-License-Identifier: Apache-2.0
"""The verbs transport where the way between two devices changes or is bad: addresses come and go, packets are lost or late,
one of two ports ends.

Rank 0 is on the first device of each veth pair and rank 1 on the second, so that what they say goes over the wire between;
the ranks themselves meet over the loopback interface, which stays as it is."""
import contextlib
import re
import signal
import time

import guest
import harness
from harness import check, tool
from softroce_verbs import right, ring_perf, verbs

SETTLE = 1  # seconds, for the kernel to fill a device's table of GIDs after an address has changed
END = 10    # seconds, in which a run that cannot go on has to end


class Job:
    """A command that runs in a guest while things change there."""

    def __init__(self, guests, argv, env, place=0):
        self.said = bytearray()
        self.command = guests.start([str(word) for word in argv], self.said.extend, self.said.extend, place, env, "/")

    def text(self):
        return bytes(self.said).decode("utf8", "replace")

    def await_text(self, pattern, seconds=30):
        """How long it took to be said."""
        begun = time.monotonic()
        while not re.search(pattern, self.text()):
            check(time.monotonic() < begun + seconds, f"nobody said '{pattern}' in {seconds} s:\n{self.text()[-3000:]}")
            check(self.command.code is None or re.search(pattern, self.text()),
                  f"ended with {self.command.code} before '{pattern}':\n{self.text()[-3000:]}")
            time.sleep(0.01)
        return time.monotonic() - begun

    def end(self, seconds):
        """The exit code and how long that took; still running is a failure."""
        begun = time.monotonic()
        code = self.command.wait(seconds)
        check(code is not None, f"still running after {seconds} s:\n{self.text()[-3000:]}")
        return code, time.monotonic() - begun

    def stop(self):
        """It must be running still."""
        check(self.command.code is None, f"ended with {self.command.code}:\n{self.text()[-3000:]}")
        self.command.kill(signal.SIGTERM)
        check(self.command.wait(20) is not None, self.text()[-3000:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.command.code is None:
            self.command.kill()
            self.command.wait(5)


def apart(argv, first="=rxe0", second="=rxe1"):
    """The ranks of ringrun's command with devices of their own."""
    at = next(i for i, word in enumerate(argv) if word.endswith(("ring_perf", "worker")))
    script = f'[ "$PMIX_RANK" = 0 ] && RING_IB_HCA={first} || RING_IB_HCA={second}; export RING_IB_HCA; exec "$@"'
    return [*argv[:at], "sh", "-c", script, "sh", *argv[at:]]


def looping(guests, *devices, most=262144):
    """Ranks that check sum after sum, until something ends them."""
    program = [tool("tools/ringrun/ringrun"), "-n", "2", tool("tests/support/worker"), "loop", f"max={most}"]
    job = Job(guests, apart([str(word) for word in program], *devices), verbs())
    job.await_text("looping")
    return job


def sums(guests, *options, devices=(), **env):
    """A few all-reduces whose results are checked."""
    argv = ring_perf("all_reduce", *(options or ("-S", "8,64K,300K")), "-n", "2", "-w", "1")
    return guests.run(apart(argv, *devices), 60, env=verbs(**env))


def ways(text):
    """(device, address, device of the peer, its address) of each rail that rank 0 has."""
    return re.findall(r"verbs link to rank 1 .*?: (\w+):1 (\S+) \(index \d+, [^)]*\) to (\w+):1 (\S+) \(", text)


def count(guests, device, counter="sent_pkts"):
    return int(guests.must(f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/{counter}"))


@contextlib.contextmanager
def undone(guests, script):
    """Things as they were before, whatever becomes of the case."""
    try:
        yield
    finally:
        guests.shell(script)
        time.sleep(SETTLE)


ADDRESSES = """\
for i in 0 1; do
    ip link set v$i down
    ip addr flush dev v$i
    ip link set v$i up
    ip addr add 10.77.0.$((i + 1))/24 dev v$i
    ip addr add fd77::$((i + 1))/64 dev v$i nodad
done"""


@guest.needs(1)
def case_addresses_before(guests):
    """The GID is chosen from what is there when a run begins."""
    def chosen(script):
        guests.must(f"{script}; sleep {SETTLE}")
        result = sums(guests, "-S", "8,64K")
        right(result)
        found = ways(result.err + result.out)
        check(len(found) == 1, result)
        return found[0]

    with undone(guests, ADDRESSES):
        added = chosen("ip addr add 10.78.0.1/24 dev v0; ip addr add 10.78.0.2/24 dev v1; ip addr del 10.77.0.2/24 dev v1")
        check(added == ("rxe0", "::ffff:10.78.0.1", "rxe1", "::ffff:10.78.0.2"), added)
        removed = chosen("ip addr del 10.78.0.1/24 dev v0; ip addr add 10.77.0.2/24 dev v1")
        check(removed == ("rxe0", "::ffff:10.77.0.1", "rxe1", "::ffff:10.77.0.2"), removed)
        changed = chosen("for i in 0 1; do ip addr flush dev v$i; ip addr add 10.79.0.$((i + 8))/24 dev v$i; done")
        check(changed == ("rxe0", "::ffff:10.79.0.8", "rxe1", "::ffff:10.79.0.9"), changed)


@guest.needs(1)
def case_no_address(guests):
    """Who insists on verbs is told what is missing, and auto does without."""
    with undone(guests, ADDRESSES):
        guests.must(f"for i in 0 1; do ip addr flush dev v$i; done; sleep {SETTLE}")
        result = sums(guests)
        check(result.code and re.search("cannot use verbs: a queue pair on rxe. port 1", result.err), result)
        out = guests.run([tool("tools/ring_info/ring_info")], env=harness.clean_env()).out
        check(re.search("verbs +off.*no GID but link-local", out), out)
        result = sums(guests, RING_TRANSPORT="auto")
        right(result)


CHANGES = (  # what, script, whether the run goes on
    ("added", "ip addr add 10.78.0.1/24 dev v0", True),
    ("removed, not in use", "ip addr del 10.78.0.1/24 dev v0", True),
    ("removed, in use", "ip addr del 10.77.0.1/24 dev v0", False),
    ("changed", "ip addr add 10.79.0.8/24 dev v1; ip addr del 10.77.0.2/24 dev v1", False),
)


@guest.needs(1)
def case_addresses_during(guests):
    with undone(guests, ADDRESSES), contextlib.ExitStack() as jobs:
        job = None
        for what, script, goes_on in CHANGES:
            if not job:
                job = jobs.enter_context(looping(guests))
            guests.must(script)
            if goes_on:
                before = count(guests, "rxe0")
                time.sleep(2)
                check(job.command.code is None and count(guests, "rxe0") > before, what, job.text()[-3000:])
                continue
            code, seconds = job.end(END)
            print(f"# an address {what}: ended after {seconds:.1f} s")
            check(code and "rxe" in job.text() and re.search(r"failed .*rank [01]", job.text()), what, job.text()[-3000:])
            job = None
            guests.shell(f"{ADDRESSES}\nsleep {SETTLE}")
        right(sums(guests, "-S", "8,64K"))


@guest.needs(1)
def case_packets_lost_and_late(guests):
    for how in ("loss 1%", "delay 2ms limit 10000"):  # a queue of 1000 packets, as is usual, would lose some
        with undone(guests, "tc qdisc del dev v0 root; tc qdisc del dev v1 root"):
            guests.must(f"for i in 0 1; do tc qdisc add dev v$i root netem {how}; done")
            result = sums(guests, "-S", "8,64K,300K")
            out = guests.must("tc -s qdisc show dev v0; tc -s qdisc show dev v1")
            right(result)
            check(ways(result.err + result.out), result)
            dropped = [int(n) for n in re.findall(r"dropped (\d+)", out)]
            check(how.startswith("delay") or min(dropped) > 0, out)
            print(f"# {how}: right after {result.seconds:.1f} s, {sum(dropped)} packets lost")


RAIL = """ip link add w0 type veth peer name w1
for i in 0 1; do
    ip addr add 10.78.0.$((i + 1))/24 dev w$i
    ip link set w$i up
done
rdma link add rxe2 type rxe netdev w0
rdma link add rxe3 type rxe netdev w1"""
NO_RAIL = "rdma link delete rxe2; rdma link delete rxe3; ip link del w0"
RAILS = ("=rxe0,rxe2", "=rxe1,rxe3")


@guest.needs(1)
def case_two_ports(guests):
    with undone(guests, NO_RAIL):
        guests.must(f"{RAIL}; sleep {SETTLE}")
        before = [count(guests, f"rxe{i}") for i in range(4)]
        result = sums(guests, "-S", "8,300K,2M", devices=RAILS)
        right(result)
        found = ways(result.err + result.out)
        check(sorted(found) == [("rxe0", "::ffff:10.77.0.1", "rxe1", "::ffff:10.77.0.2"),
                                ("rxe2", "::ffff:10.78.0.1", "rxe3", "::ffff:10.78.0.2")], found, result)
        sent = [count(guests, f"rxe{i}") - n for i, n in enumerate(before)]
        print("# packets sent by each port:", *sent)
        check(min(sent) > max(sent) / 4, sent)


@guest.needs(1)
def case_one_of_two_ports_is_lost(guests):
    """The run goes on over the other one: its port goes down, or its packets do not arrive any more and nobody says so."""
    for how, script, back in (("down", "ip link set w0 down", "ip link set w0 up"),
                              ("silent", "for i in 0 1; do tc qdisc add dev w$i root netem loss 100%; done",
                               "for i in 0 1; do tc qdisc del dev w$i root; done")):
        with undone(guests, f"{back}; {NO_RAIL}"):
            guests.must(f"{RAIL}; sleep {SETTLE}")
            with looping(guests, *RAILS) as job:
                check(len(ways(job.text())) == 2, job.text())
                guests.must(script)
                time.sleep(3)
                before = count(guests, "rxe0")
                time.sleep(1)
                check(job.command.code is None and count(guests, "rxe0") > before, f"port {how}:", job.text()[-3000:])
                job.stop()
