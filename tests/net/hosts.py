# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces: who counts as one host, which interface and family are used, how many ports are
open, and right sums by every way."""
import os
import re
import shutil
import subprocess

import harness
import jobs
from harness import check


def joined(text):
    return [int(n) for n in re.search(r"joined (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", text).groups()]


def case_one_host_every_way():
    for way in jobs.WAYS.values():
        for size in (1, 2, 3, 5, 8):
            jobs.finishes(size, "sums", env=way)
        jobs.finishes(4, "flight", env=way)


def case_every_algorithm():
    for algorithm in ("ring", "doubling", "exchange", "rabenseifner", "tree", "direct", "two_shot"):
        for size in (2, 3, 6):
            jobs.finishes(size, "sums", env={"RING_ALGO": algorithm})


def case_several_sockets():
    for sockets in (2, 5):
        jobs.finishes(3, "flight", env={"RING_TRANSPORT": "tcp", "RING_TCP_SOCKETS": sockets})


def case_two_hosts():
    with harness.Net(2) as net:
        outs, _ = jobs.finishes(4, "sums", net=net, place=[0, 0, 1, 1])
        for r, text in enumerate(outs):
            _, _, _, node, nodes, local, locals_ = joined(text)
            check((node, nodes, local, locals_) == (r // 2, 2, r % 2, 2), text)
        jobs.finishes(5, "flight", net=net, place=[0, 1, 0, 1, 1])


def case_one_host_with_two_identities():
    outs, _ = jobs.finishes(4, "sums", per_rank={1: {"RING_HOST_ID": "b"}, 3: {"RING_HOST_ID": "b"}})
    check([joined(t)[3:] for t in outs] == [[0, 2, 0, 2], [1, 2, 0, 2], [0, 2, 1, 2], [1, 2, 1, 2]], outs)


def case_ranks_that_cannot_share_memory():
    """Two users on one host are two hosts; told that they are one, they find out that they cannot share and use links."""
    if os.geteuid() != 0:
        harness.skip("another user needs root")
    with harness.folder() as path:
        os.chmod(path, 0o755)  # the build folder may be closed to others
        program = shutil.copy(harness.tool("tests/support/worker"), path)
        shutil.copy(f"{harness.BUILD}/libring.so.0", path)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for identity in ({}, {"RING_HOST_ID": "one"}):
            env = {"LD_LIBRARY_PATH": path, "RING_TIMEOUT": "8s", **identity}
            job = jobs.Job(path, 2, "sums", env=env, program=program, prefix={1: nobody})
            try:
                check(job.wait(20) == [0, 0], identity, job.story())
                check([joined(job.text(r))[4] for r in (0, 1)] == [2, 2], identity, job.story())
                check(("cannot share memory" in job.text(1, "err")) == bool(identity), identity, job.story())
            finally:
                job.close()
            os.unlink(f"{path}/ticket.0")


def case_ipv6_only():
    with harness.Net(2) as net:
        for i in range(2):
            subprocess.run(["ip", "-n", net.names[i], "-4", "addr", "flush", "dev", "eth0"], check=True)
        jobs.finishes(2, "sums", net=net, place=[0, 1])


def case_family_by_setting():
    with harness.Net(2) as net:
        for family, address in (("ipv4", "10.77.0."), ("ipv6", "fd77::")):
            _, errs = jobs.finishes(2, "sums", net=net, place=[0, 1],
                                    env={"RING_SOCKET_FAMILY": family, "RING_LOG": "info"})
            check(address in errs[0], errs[0])


def case_interface_by_setting():
    with harness.Net(2) as net:
        for i in range(2):
            for command in ("link add dummy7 type veth peer name dummy8", "link set dummy8 up", "link set dummy7 up",
                            f"addr add 10.99.{i}.1/24 dev dummy7"):
                subprocess.run(["ip", "-n", net.names[i], *command.split()], check=True)
        for good in ("eth", "=eth0", "^dummy", "=eth0,none", "^=dummy7"):
            _, errs = jobs.finishes(2, "sums", net=net, place=[0, 1],
                                    env={"RING_SOCKET_IFNAME": good, "RING_LOG": "info"})
            check("eth0" in errs[1], good, errs[1])
        with jobs.job(2, "sums", net=net, place=[0, 1], env={"RING_SOCKET_IFNAME": "=eth"}) as j:
            check(j.wait(20, [0]) == [3] and "RING_SOCKET_IFNAME" in j.text(0) and "eth0" in j.text(0), j.story())


def listening(net, i):
    text = subprocess.run([*net.inside(i), "ss", "-Htln"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3] for line in text.splitlines()]


def case_ports_close_with_the_communicator():
    """While a job runs its ranks listen on the chosen interface, for links that are wanted later; then no more."""
    with harness.Net(2) as net:
        with jobs.job(4, "loop", net=net, place=[0, 0, 1, 1]) as j:
            j.await_text("looping")
            for i in range(2):
                hosts = {where.rsplit(":", 1)[0] for where in listening(net, i)}
                check(hosts and not hosts & {"0.0.0.0", "*", "[::]"}, hosts)
        with jobs.job(4, "sums", "linger=30", net=net, place=[0, 0, 1, 1]) as j:
            j.await_text("left")
            check(listening(net, 0) == [] and listening(net, 1) == [], listening(net, 0), listening(net, 1))


def case_port_range():
    with harness.Net(2) as net:
        jobs.finishes(2, "sums", net=net, place=[0, 1], env={"RING_PORT_RANGE": "23456-23499"})
        with jobs.job(2, "sums", net=net, place=[0, 1], env={"RING_PORT_RANGE": "99-1"}) as j:
            check(j.wait(20, [0]) == [3] and "RING_PORT_RANGE" in j.text(0), j.story())


def case_congestion_control():
    with harness.Net(2) as net:
        jobs.finishes(2, "sums", net=net, place=[0, 1], env={"RING_TCP_CONGESTION": "reno"})
        with jobs.job(2, "sums", net=net, place=[0, 1], env={"RING_TCP_CONGESTION": "nonesuch"}) as j:
            check(3 in j.wait(30) and "nonesuch" in j.text(0) + j.text(1), j.story())


def case_more_than_two_to_the_31():
    """2^31 + 5 elements, in place, by direct memory and by the ring."""
    for way in ("node", "tcp"):
        jobs.finishes(2, "huge", env=jobs.WAYS[way], seconds=150)


if __name__ == "__main__":
    harness.main(globals())
