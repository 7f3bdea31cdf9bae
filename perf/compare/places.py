# SPDX-License-Identifier: Apache-2.0
"""Where compare runs its programs, and how: environments without a trace of a launcher, programs that cannot hang for
ever or leave a process behind, and network namespaces.  Nothing outside of those namespaces is changed."""
import contextlib
import ctypes
import glob
import os
import re
import signal
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds for one run; the longest takes a few


class Unavailable(Exception):
    """Why a contender or a case cannot run at all."""


class Failed(Exception):
    """Why one run gave no figure; the next may."""


class Hung(Failed):
    """It did not end in time, and may well not the next time."""


# ---- programs ----

# Who allocates in every call gets memory from the system and gives it back in every call, unless the C library is told to
# keep it: users of such libraries set this, and a page fault costs so much on a virtual machine that it would be all the
# figure says.
MEMORY = {"MALLOC_MMAP_MAX_": 0, "MALLOC_TRIM_THRESHOLD_": 1 << 40, "MALLOC_TOP_PAD_": 64 << 20}


def clean_env(**more):
    """Our environment without anything that looks like a launcher or a setting, with memory kept, plus `more`."""
    more = {**MEMORY, **more}
    alien = r"(RING_|PMIX_|PMI_|OMPI_|SLURM_|WORLD_SIZE|RANK$|LOCAL_RANK)"
    return {**{k: v for k, v in os.environ.items() if not re.match(alien, k)}, **{k: str(v) for k, v in more.items()}}


def adopt_orphans():
    """Become the parent of what our children leave behind, so that end_all() finds it (Linux)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def end_all():
    """Kill and reap every process below this one: launchers put theirs into sessions of their own."""
    while below := children(os.getpid()):  # what dies hands its children up to us
        for pid in below:
            below += children(pid)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def run_together(jobs, patience=PATIENCE):
    """Start all of (argv, env) at once; what each prints.  Raises Hung or Failed.  Nothing that they started is left."""
    jobs = [([str(a) for a in argv], env) for argv, env in jobs]
    end, processes, outputs = time.monotonic() + patience, [], []
    try:
        for argv, env in jobs:
            processes.append(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True))
        for (argv, _), process in zip(jobs, processes):
            out, err = process.communicate(timeout=max(0.01, end - time.monotonic()))
            if process.returncode:
                raise Failed(f"exit code {process.returncode}: {' '.join(argv)}\n{(out + err)[-2000:].strip()}")
            outputs.append(out)
    except subprocess.TimeoutExpired:
        raise Hung(f"still ran after {patience} s: {' '.join(jobs[0][0])}") from None
    finally:
        end_all()
        for process in processes:
            process.stdout.close()
            process.stderr.close()
    return outputs


def run(argv, env, patience=PATIENCE):
    return run_together([(argv, env)], patience)[0]


# ---- network namespaces ----

def ip(*argv):
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True).stdout


def use_cubic(namespace):
    """Every connection in the namespace uses cubic, by its routes: the setting proper may be closed to namespaces."""
    for table in ("local", "main"):
        for route in ip("-n", namespace, "-4", "route", "show", "table", table).splitlines():
            if not route.startswith(("broadcast", "default")):
                ip("-n", namespace, "-4", "route", "change", "table", table, *route.replace("linkdown", "").split(), "congctl",
                   "cubic")


class Here:
    """This machine as it is.  A place says how each contender is started there: a command in front of everything (prefix),
    or of each rank, and options and environments of the launchers."""
    prefix = ()
    ringrun = ()
    ring_env = {}
    openmpi = ("--mca", "btl", "vader,self")
    mpich = ()
    mpich_env = {}
    interface = "lo"
    limits = ()

    def rank_prefix(self, _):
        return self.prefix

    def close(self):
        pass


class Namespaces(Here):
    """Namespaces with nothing but lo; close() removes them, and a constructor that fails has done so."""
    openmpi = ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo")
    mpich = ("-iface", "lo")
    mpich_env = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "MPIR_CVAR_NOLOCAL": 1}

    def __init__(self, *names):
        if os.geteuid():
            raise Unavailable("a network namespace needs root")
        self.names = names
        try:
            for name in names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.fill()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise Unavailable(f"no network namespaces: {getattr(error, 'stderr', None) or error}") from None

    def fill(self):
        pass

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Loopback(Namespaces):
    """One, so that the congestion control of all contenders can be set."""
    ring_env = {"RING_TRANSPORT": "tcp", "RING_NODE": "off"}

    def __init__(self):
        name = f"cmp{os.getpid()}"
        self.prefix = ["ip", "netns", "exec", name]
        super().__init__(name)

    def fill(self):
        use_cubic(self.names[0])


# What launchers call to start something on another "host": a namespace, and a host name of its own, because Open MPI takes
# hosts of one name for one host.
RSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=${1##*@}; shift
exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"
"""


class Hosts(Namespaces):
    """Namespaces as hosts, with eth0 each: 10.78.0.1, 10.78.0.2 ...; every launcher runs on the first."""
    interface = "eth0"

    def __init__(self, count, ranks_each=1, rate=None):
        prefix = f"cmp{os.getpid()}"
        self.rate, self.each = rate, ranks_each
        self.hosts = [f"{prefix}h{i}" for i in range(count)]
        self.folder = tempfile.TemporaryDirectory(prefix="compare-rsh-")
        self.rsh = f"{self.folder.name}/rsh"
        with open(self.rsh, "w", encoding="ascii") as file:
            file.write(RSH)
        os.chmod(self.rsh, 0o755)
        self.set_launchers()
        super().__init__(*self.hosts, *([f"{prefix}s"] if count > 2 or rate else []))

    def set_launchers(self):
        hosts = ",".join(f"{name}:{self.each}" for name in self.hosts)
        self.ringrun = ["--rsh", "ip netns exec", "-H", hosts]
        self.prefix = ["ip", "netns", "exec", self.hosts[0]]
        # By address, because no resolver knows these names.
        self.openmpi = ["--mca", "plm_rsh_agent", self.rsh, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0",
                        "--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none", "-H", hosts]
        self.mpich = ["-launcher", "ssh", "-launcher-exec", self.rsh, "-iface", "eth0", "-hosts", hosts, "-localhost",
                      self.hosts[0]]
        self.mpich_env = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        self.limits = ["-A", "10.78.0.1", "-N", self.hosts[1]]

    def rank_prefix(self, rank):
        return ["ip", "netns", "exec", self.hosts[rank // self.each]]

    def fill(self):
        if len(self.names) == 2:
            ip("-n", self.hosts[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.hosts[1])
        else:
            self.add_switch()
        for i, host in enumerate(self.hosts):
            ip("-n", host, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            if self.rate:
                subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst",
                                "256kb", "latency", "50ms"], check=True, capture_output=True, text=True)
        for host in self.hosts:  # when both ends of every link are up
            use_cubic(host)

    def add_switch(self):
        switch = self.names[-1]
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, host in enumerate(self.hosts):
            ip("-n", switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", switch, "link", "set", f"p{i}", "master", "br0", "up")

    def close(self):
        super().close()
        self.folder.cleanup()


PLACES = {"shm": Here, "full": Here, "start": Here, "tcp": Loopback, "veth": lambda: Hosts(2),
          "wire4": lambda: Hosts(4, rate="1gbit"), "wire6": lambda: Hosts(6, rate="1gbit"),
          "slow": lambda: Hosts(2, ranks_each=2, rate="200mbit")}
