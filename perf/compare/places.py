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
import time

PATIENCE = 60  # seconds for one run; the longest takes a few


class Unavailable(Exception):
    """Why a contender or a case cannot run at all."""


class Failed(Exception):
    """Why one run gave no figure; the next may."""


class Hung(Failed):
    """It did not end in time, and may well not the next time."""


# ---- programs ----

def clean_env(**more):
    """Our environment without anything that looks like a launcher or a setting, plus `more`."""
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


def run(argv, env, patience=PATIENCE):
    """What it prints; raises Hung or Failed.  Nothing that it started is left."""
    argv = [str(a) for a in argv]
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        raise Hung(f"still ran after {patience} s: {' '.join(argv)}") from None
    finally:
        end_all()
        process.stdout.close()
        process.stderr.close()
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {' '.join(argv)}\n{(out + err)[-2000:].strip()}")
    return out


# ---- network namespaces ----

def ip(*argv):
    return subprocess.run(["ip", *argv], check=True, capture_output=True, text=True).stdout


def use_cubic(namespace):
    """Every connection in the namespace uses cubic, by its routes: the setting proper may be closed to namespaces."""
    for table in ("local", "main"):
        for route in ip("-n", namespace, "-4", "route", "show", "table", table).splitlines():
            if not route.startswith(("broadcast", "default")):
                ip("-n", namespace, "-4", "route", "change", "table", table, *route.split(), "congctl", "cubic")


class Here:
    """This machine as it is."""
    prefix = ()

    def close(self):
        pass


class Namespaces:
    """Namespaces with nothing but lo; close() removes them, and a constructor that fails has done so."""

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

    def __init__(self):
        name = f"cmp{os.getpid()}"
        self.prefix = ["ip", "netns", "exec", name]
        super().__init__(name)

    def fill(self):
        use_cubic(self.names[0])


class Wire(Namespaces):
    """Four hosts on a switch, 1 Gbit/s each way by a token bucket."""

    def __init__(self):
        self.hosts = [f"cmp{os.getpid()}h{i}" for i in range(4)]
        super().__init__(*self.hosts, f"cmp{os.getpid()}s")

    def fill(self):
        switch = self.names[-1]
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, host in enumerate(self.hosts):
            ip("-n", switch, "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", switch, "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", host, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "256kb",
                            "latency", "50ms"], check=True, capture_output=True, text=True)
            use_cubic(host)
