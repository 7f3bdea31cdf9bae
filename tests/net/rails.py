# SPDX-License-Identifier: Apache-2.0
"""Several interfaces side by side: each carries its share, one that is down is gone around, one that is cut ends the job
with a sentence."""
import contextlib
import os
import re
import signal
import subprocess
import time

import harness
import jobs
from harness import check

RAILS = {"RING_TCP_RAILS": 2, "RING_TRANSPORT": "tcp"}
PEER_LOST = -4


def ip(namespace, *words):
    return subprocess.run(["ip", "-n", namespace, *words], check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def looping(most):
    """Two hosts that all-reduce up to so many bytes again and again."""
    with harness.Net(2, rails=2) as net:
        with jobs.job(2, "loop", f"max={most}", net=net, place=[0, 1], env=RAILS) as j:
            j.await_text("looping")
            yield net, j


def unplug(net, host, rail):
    """The cable leads nowhere, and neither end can see that."""
    ip(net.switch, "link", "set", net.port(host, rail), "nomaster")


def carried(net, host, interface):
    text = subprocess.run([*net.inside(host), "cat", f"/sys/class/net/{interface}/statistics/tx_bytes"],
                          check=True, capture_output=True, text=True).stdout
    return int(text)


def seconds(net, env):
    outs, errs = jobs.finishes(2, "timed", f"bytes={16 << 20}", net=net, place=[0, 1], env=env)
    return float(re.search(r"took ([\d.]+) s", outs[0]).group(1)), errs


def case_two_rails_are_nearly_twice_as_fast():
    """The best of a few: the cables are as fast as they are said to be, the processors may be busy."""
    with harness.Net(2, rate="100mbit", rails=2) as net:
        one, two = [], []
        while not one or (min(one) / min(two) < 1.8 and len(one) < 5):
            one.append(seconds(net, {})[0])
            before = carried(net, 0, "eth0"), carried(net, 0, "eth1")
            took, errs = seconds(net, RAILS)
            after = carried(net, 0, "eth0"), carried(net, 0, "eth1")
            two.append(took)
            share = (after[1] - before[1]) / (after[0] - before[0] + after[1] - before[1])
            check(0.45 <= share <= 0.55, "share of the second rail", share)
            check(errs == ["", ""], errs)
        print(f"one rail {min(one):.3f} s, two {min(two):.3f} s")
        check(min(one) / min(two) >= 1.8, "one rail", one, "s, two", two, "s")


def case_right_sums_over_rails():
    with harness.Net(3, rails=3) as net:
        env = {"RING_TCP_RAILS": 3, "RING_TCP_SOCKETS": 2}
        jobs.finishes(3, "sums", net=net, place=[0, 1, 2], env=env)
        check(all(carried(net, i, f"eth{k}") > 1 << 20 for i in range(3) for k in range(3)), "each rail is used")


def case_networks_are_matched_not_names():
    """What is eth0 here is eth1 there."""
    with harness.Net(2, rails=2) as net:
        for interface, other in (("eth0", 78), ("eth1", 77)):
            ip(net.names[1], "addr", "flush", "dev", interface)
            ip(net.names[1], "addr", "add", f"10.{other}.0.2/24", "dev", interface)
        for k in range(2):
            ip(net.switch, "link", "set", net.port(1, k), "master", f"br{1 - k}")
        _, errs = jobs.finishes(2, "sums", net=net, place=[0, 1], env=RAILS)
        check(errs == ["", ""], errs)
        check(all(carried(net, 0, f"eth{k}") > 1 << 20 for k in range(2)), "each rail is used")


def case_an_interface_is_down():
    with harness.Net(2, rails=2) as net:
        ip(net.names[1], "link", "set", "eth1", "down")
        _, errs = jobs.finishes(2, "sums", net=net, place=[0, 1], env=RAILS)
        check(errs[1].count("RING_TCP_RAILS is 2, but only 1") == 1 and "eth0" in errs[1], errs[1])


def case_a_cable_leads_nowhere():
    with harness.Net(2, rails=2) as net:
        unplug(net, 1, 1)
        _, errs = jobs.finishes(2, "sums", net=net, place=[0, 1], env={**RAILS, "RING_TCP_SOCKETS": 3})
        check(len(re.findall(r"way from 10\.78\.0\.1 to rank 1 at 10\.78\.0\.2:\d+ is down", errs[0])) == 1, errs[0])
        check(len(errs[0].splitlines()) == 1 and errs[1] == "", errs)


def case_a_cable_is_cut():
    """The kernel would try for a quarter of an hour."""
    with looping(4194304) as (net, j):
        unplug(net, 0, 1)
        begun = time.monotonic()
        check(j.wait(40) == [3, 3], j.story())
        check(time.monotonic() - begun < 30, time.monotonic() - begun)
        check(any("10.78.0." in j.text(r, "err") and "has not answered" in j.text(r, "err") for r in range(2)),
              j.story())
        check(all(re.search(rf"failed {PEER_LOST} .*rank [01] \(.* timed out between 10\.78\.0\.", j.text(r))
                  for r in range(2)), j.story())


def case_a_cable_is_cut_while_nothing_is_under_way():
    """Then it is the kernel's own question that nobody answers.  The other rank is stopped, so that nothing comes."""
    with looping(67108864) as (net, j):
        os.kill(j.pid(0), signal.SIGSTOP)
        time.sleep(1)
        unplug(net, 0, 1)
        begun = time.monotonic()
        while j.processes[1].poll() is None and time.monotonic() - begun < 30:
            time.sleep(0.1)
        os.kill(j.pid(0), signal.SIGCONT)
        check(j.wait(30) == [3, 3], j.story())
        check(re.search(r"rank 0 \(.* has not answered for \d+ s between 10\.78\.0\.\d+ and 10\.78\.0\.\d+", j.text(1, "err")),
              j.story())
        check(re.search(rf"failed {PEER_LOST} .*rank 0 \(.* timed out between 10\.78\.0\.\d+ and 10\.78\.0\.\d+", j.text(1)),
              j.story())


def case_a_rank_that_does_not_read_is_not_lost():
    """Stopped for longer than a cut cable may be silent: its kernel answers."""
    with looping(67108864) as (_, j):
        os.kill(j.pid(1), signal.SIGSTOP)
        time.sleep(14)
        os.kill(j.pid(1), signal.SIGCONT)
        time.sleep(2)
        check([p.poll() for p in j.processes.values()] == [None, None], j.story())
        check("has not answered" not in j.text(0, "err"), j.story())


if __name__ == "__main__":
    harness.main(globals())
