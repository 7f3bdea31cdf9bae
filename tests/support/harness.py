# SPDX-License-Identifier: Apache-2.0
"""What the programs under tests/ that need processes or network namespaces share.

A test program defines functions named case_* and ends in harness.main(globals()).  Each case either returns, raises
(failed) or calls skip(reason).  The exit code is 1 if any failed, 77 if all were skipped, else 0.  Every case starts and
ends with no stray process of its own and no new entry in /dev/shm or /tmp, or it has failed.  Cases that are marked with
@harness.waits run at the end, side by side in threads; what they leave behind is laid to all of them.

Environment (set by meson): RING_BUILD, the build folder.  RING_TEST_SEED changes the seed, RING_TEST_CASES picks cases by
substring."""
import concurrent.futures
import contextlib
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.environ.get("RING_BUILD", "")
SEED = int(os.environ.get("RING_TEST_SEED", "1"))


class Skipped(Exception):
    pass


def waits(case):
    """Mark a case that mostly waits, takes nothing from random, and leaves this process as it is."""
    case.waits = True
    return case


def skip(reason):
    raise Skipped(reason)


def tool(path):
    """A program of the build by its path in it, e.g. tool('tools/ringrun/ringrun')."""
    full = os.path.join(BUILD, path)
    if not os.access(full, os.X_OK):
        skip(f"{path} is not built")
    return full


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in what))


def clean_env(**more):
    """Our environment without anything that looks like a launcher or a setting, plus `more`."""
    env = {k: v for k, v in os.environ.items()
           if not re.match(r"(RING_|PMIX_|PMI_|OMPI_|SLURM_|WORLD_SIZE|RANK$|LOCAL_RANK)", k)}
    env.update({k: str(v) for k, v in more.items()})
    return env


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __str__(self):
        return f"exit {self.code} after {self.seconds:.2f} s\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


def start(argv, env=None, **popen):
    """Start in a session of its own, so that stop() reaches all of it."""
    return subprocess.Popen(argv, env=clean_env() if env is None else env, start_new_session=True, text=True, **popen)


def stop(process):
    """End a process that start() made, and its whole session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def run(argv, timeout=60, env=None, stdin="", cwd=None):
    """Run to the end; running longer than timeout is a failure."""
    begun = time.monotonic()
    process = start(argv, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        out, err = process.communicate()
        raise AssertionError(f"{' '.join(argv)} still ran after {timeout} s\n{out[-3000:]}\n{err[-3000:]}") from None
    return Result(process.returncode, out, err, time.monotonic() - begun)


def descendants():
    """Living processes below this one: {pid: command}."""
    parent, command = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = open(f"/proc/{entry}/stat", encoding="utf8", errors="replace").read()
            name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
            if rest[0] != "Z":
                parent[int(entry)], command[int(entry)] = int(rest[1]), name
    found, todo = {}, [os.getpid()]
    while todo:
        above = todo.pop()
        for pid, up in parent.items():
            if up == above and pid not in found:
                found[pid] = command[pid]
                todo.append(pid)
    return found


def files():
    """What the library or the launcher could leave behind."""
    names = set()
    for folder in ("/dev/shm", "/tmp"):
        with contextlib.suppress(OSError):
            names |= {f"{folder}/{n}" for n in os.listdir(folder) if re.search(r"ring|pmix|prte|ompi", n, re.I)}
    return names


@contextlib.contextmanager
def nothing_left():
    """Fails when what runs inside leaves a process (also one that was re-parented to us) or a file."""
    before_files, before = files(), set(descendants())
    yield
    left = {}
    for _ in range(100):
        left = {p: c for p, c in descendants().items() if p not in before}
        if not left and files() <= before_files:
            return
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"left behind: processes {left}, files {sorted(files() - before_files)}")


NETS = itertools.count()


class Net:
    """`count` network namespaces on one bridge that lives in a namespace of its own: nothing touches the host's network.
    Host i is 10.77.0.(i+1) and fd77::(i+1) on interface eth0.  rate: e.g. '1gbit', by a token bucket each way.
    rails: more of the same, 10.78.0.(i+1) on eth1 and so on, on bridges br1 and so on.  port(i, rail) is the switch's end
    of a cable."""

    def __init__(self, count, rate=None, rails=1):
        if os.geteuid() != 0:
            skip("network namespaces need root")
        if subprocess.run(["ip", "netns", "list"], capture_output=True).returncode != 0:
            skip("ip netns does not work here")
        self.prefix = f"rt{os.getpid()}n{next(NETS)}"
        self.names = [f"{self.prefix}h{i}" for i in range(count)]
        self.switch = f"{self.prefix}s"
        try:
            self._make(rate, rails)
        except Exception:
            self.close()
            raise

    def _make(self, rate, rails):
        sh = lambda *a: subprocess.run(a, check=True, capture_output=True, text=True)
        for name in [self.switch, *self.names]:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        for rail in range(rails):
            bridge, eth = f"br{rail}", f"eth{rail}"
            sh("ip", "-n", self.switch, "link", "add", bridge, "type", "bridge")
            sh("ip", "-n", self.switch, "link", "set", bridge, "up")
            for i, name in enumerate(self.names):
                port = self.port(i, rail)
                sh("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", eth, "netns", name)
                sh("ip", "-n", self.switch, "link", "set", port, "master", bridge, "up")
                sh("ip", "-n", name, "addr", "add", f"10.{77 + rail}.0.{i + 1}/24", "dev", eth)
                sh("ip", "-n", name, "addr", "add", f"fd{77 + rail}::{i + 1}/64", "dev", eth, "nodad")
                sh("ip", "-n", name, "link", "set", eth, "up")
                if rate:
                    sh("tc", "-n", name, "qdisc", "add", "dev", eth, "root", "tbf", "rate", rate, "burst", "256kb",
                       "latency", "50ms")

    @staticmethod
    def port(i, rail=0):
        return f"p{i}r{rail}"

    def inside(self, i):
        """The command prefix that runs something on host i."""
        return ["ip", "netns", "exec", self.names[i]]

    def close(self):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def folder():
    """A folder for a case, not under a name that nothing_left() looks at."""
    with tempfile.TemporaryDirectory(prefix="case-") as path:
        yield path


def adopt_orphans():
    """Become the parent of what our children leave behind, so that nothing_left() sees it (Linux)."""
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def end_all(number, _):
    """Our own deadline has passed (meson says so by TERM): nothing that we started may go on."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    print(f"# ended by signal {number}", flush=True)
    os._exit(1)


def outcome(case):
    """"ok", "skip" or "not ok", and the rest of its line, or what went wrong."""
    begun = time.monotonic()
    try:
        case()
        return "ok", f"{time.monotonic() - begun:.1f} s"
    except Skipped as reason:
        return "skip", f"SKIP {reason}"
    except Exception:
        return "not ok", traceback.format_exc()


def watched(*cases):
    """Outcomes of cases that run side by side, all of which have failed when something is left behind."""
    with concurrent.futures.ThreadPoolExecutor(max(1, len(cases))) as pool:
        try:
            with nothing_left():
                found = list(pool.map(outcome, cases))
        except AssertionError as left:
            found = [(how, text) if how == "not ok" else ("not ok", str(left)) for how, text in found]
    return found


def main(names):
    adopt_orphans()
    signal.signal(signal.SIGTERM, end_all)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored under nohup and in the background of a shell
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    random.seed(SEED)
    print(f"# seed {SEED} (RING_TEST_SEED)")
    picked = os.environ.get("RING_TEST_CASES", "")
    cases = [f for n, f in names.items() if n.startswith("case_") and picked in n]
    together = [f for f in cases if hasattr(f, "waits")]
    counted = dict.fromkeys(("ok", "skip", "not ok"), 0)
    print(f"1..{len(cases)}", flush=True)
    number = 0
    for group in [*([f] for f in cases if f not in together), *([together] if together else [])]:
        for case, (how, text) in zip(group, watched(*group)):
            number, counted[how] = number + 1, counted[how] + 1
            print(f"{'not ok' if how == 'not ok' else 'ok'} {number} - {case.__name__}", end="")
            print("\n# " + text.replace("\n", "\n# ") if how == "not ok" else f" # {text}", flush=True)
    sys.exit(1 if counted["not ok"] else 77 if cases and counted["skip"] == len(cases) else 0)
