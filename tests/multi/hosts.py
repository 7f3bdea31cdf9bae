# SPDX-License-Identifier: Apache-2.0
"""ringrun on several hosts, which are network namespaces: reached by 'ip netns exec', and by real ssh."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import check, run, tool

RINGRUN = tool("tools/ringrun/ringrun")
EXCHANGE = tool("tests/multi/pmix_exchange")
SHOW = "import os,sys; print(repr(([os.fsencode(a) for a in sys.argv[1:]], dict(os.environb), os.getcwdb())))"
MAGIC = b"\x01ringrun-agent\x01\n"


@contextlib.contextmanager
def script(text, name="script"):
    with harness.folder() as path:
        full = f"{path}/{name}"
        with open(full, "w") as f:
            f.write(text)
        os.chmod(full, 0o755)
        yield full


def host_list(net, slots):
    return ",".join(f"{name}:{slots}" for name in net.names)


def on(net, *args, **how):
    """A job on all hosts of the net, two ranks each, by 'ip netns exec'."""
    return run([RINGRUN, "--rsh", "ip netns exec", "-H", host_list(net, 2), *args], **how)


def case_ranks_are_placed_in_blocks():
    with harness.Net(3) as net:
        result = on(net, "sh", "-c", "echo $PMIX_RANK $(ip netns identify)")
        check(result.code == 0, result)
        for line in result.out.splitlines():
            rank, name = line.split()
            check(name == net.names[int(rank) // 2], line)
        a, b, c = net.names
        for hosts, n, want in ((f"{a},{b},{c}", 7, "0001122"), (f"{a}:1,{b},{c}:2", 6, "011122"),
                               (f"{a}:2,{b}:2", 3, "001"), (f"{a},{b},{a}", None, "001")):
            ranks = ["-n", str(n)] if n else []
            result = run([RINGRUN, "--rsh", "ip netns exec", "-H", hosts, *ranks, "sh", "-c",
                          "echo $PMIX_RANK $(ip netns identify)"])
            seen = dict(line.split() for line in result.out.splitlines())
            check("".join(str(net.names.index(seen[str(r)])) for r in range(len(seen))) == want, hosts, n, result)


def case_pmix_across_hosts():
    with harness.Net(3) as net:
        result = on(net, EXCHANGE, "10")
        want = sorted(f"rank {i} of 6 local {i % 2} of 2 ok" for i in range(6))
        check(result.code == 0 and sorted(result.out.splitlines()) == want, result)
        for mode in (["fetch"], ["half"], ["fences", "300"]):
            result = on(net, EXCHANGE, *mode)
            check(result.code == 0 and result.out.count("ok") == 6, mode, result)
        result = on(net, EXCHANGE, "nothing", timeout=20)
        check(result.code == 0 and result.seconds < 8 and "SUCCESS" not in result.out, result)


def case_pmix_failures_across_hosts():
    with harness.Net(3) as net:
        result = on(net, EXCHANGE, "die", "3")
        check(result.code == 137 and result.seconds < 4 and ": SUCCESS" not in result.out, result)
        check(f"rank 3 on host {net.names[1]} died by signal 9" in result.err, result)
        result = on(net, EXCHANGE, "absent", "5")
        check(result.code == 0 and result.seconds < 8 and ": SUCCESS" not in result.out, result)
        result = on(net, EXCHANGE, "abort", "4", "9")
        check(result.code == 9 and result.seconds < 4 and f"rank 4 on host {net.names[2]}" in result.err, result)


def case_unreachable_host():
    with harness.Net(1) as net:
        result = run([RINGRUN, "--rsh", "ip netns exec", "-H", f"{net.names[0]}:1,no-such-host:2", "sleep", "20"])
        check(result.code == 125 and result.seconds < 5, result)
        check("cannot start on host no-such-host (ranks 1-2): ip ended with exit code" in result.err, result)
        check(result.err.count("ringrun: ") == 1, result)
        result = run([RINGRUN, "--rsh", "/no/such/rsh", "-H", "a", "true"])
        check(result.code == 125 and "/no/such/rsh" in result.err and "host a" in result.err, result)


def children(process):
    return [int(c) for c in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]


def case_host_is_lost():
    with harness.Net(2) as net:
        process = harness.start([RINGRUN, "--rsh", "ip netns exec", "-H", host_list(net, 2), "sh", "-c",
                                 "echo up; exec sleep 100"], stdout=-1, stderr=-1)
        for _ in range(4):
            process.stdout.readline()
        os.kill(children(process)[1], signal.SIGKILL)
        begun = time.monotonic()
        _, err = process.communicate(timeout=20)
        check(process.returncode == 125 and time.monotonic() - begun < 8, process.returncode, err)
        check(f"lost host {net.names[1]} (ranks 2-3): ip was killed by signal 9" in err, err)


def case_program_is_missing_on_one_host():
    """RINGRUN_REMOTE is what is started there; here it hides the program first, and prints what logins print."""
    with harness.Net(2) as net, script("#!/bin/sh\necho ran\n", "prog") as prog:
        with script(f"#!/bin/sh\necho Welcome to this machine\n[ $(ip netns identify) = {net.names[1]} ] && "
                    f"mount -t tmpfs none {os.path.dirname(prog)}\nexec {RINGRUN} \"$@\"\n") as wrapper:
            result = on(net, prog, env=harness.clean_env(RINGRUN_REMOTE=wrapper))
            check(result.code == 127 and f" on host {net.names[1]} cannot start" in result.err and "not found" in result.err,
                  result)
            check("Welcome" not in result.out, result)
            result = on(net, "--wdir", os.path.dirname(prog), "sh", "-c", "cat prog >/dev/null",
                        env=harness.clean_env(RINGRUN_REMOTE=wrapper))
            check(result.code == 1 and f"host {net.names[1]}" in result.err, result)


def case_strange_agents():
    """What answers is no agent, or one of another version."""
    hello = (13).to_bytes(4, "little") + (1).to_bytes(4, "little") + (99).to_bytes(4, "little") + \
        (1).to_bytes(4, "little") + b"9" + bytes(4)
    for sent, words in ((b"", "ended with exit code 0"),
                        (b"no agent at all\n" * 10000, "sent nonsense"),
                        (MAGIC + b"\xff" * 100, "sent nonsense"),
                        (MAGIC + hello, "protocol 99"),
                        (MAGIC[:-3], "ended with exit code 0")):
        with script(f"#!{sys.executable}\nimport sys, time\nsys.stdout.buffer.write({sent!r})\n"
                    "sys.stdout.flush()\ntime.sleep(0.2)\n") as rsh:
            result = run([RINGRUN, "--rsh", rsh, "-H", "h:2", "true"])
            check(result.code == 125 and words in result.err and "host h" in result.err, sent[:40], result)


def case_default_is_ssh():
    """Without --rsh: this host by any name needs no ssh, others get it with careful options."""
    with harness.Net(1) as net, harness.folder() as path:
        with open(path + "/ssh", "w") as f:
            f.write(f"#!/bin/sh\necho \"$@\" >>{path}/log\nwhile [ \"$1\" != -- ]; do shift; done\nshift\n"
                    f"exec ip netns exec \"$@\"\n")
        os.chmod(path + "/ssh", 0o755)
        env = harness.clean_env(PATH=path + ":" + os.environ["PATH"])
        for own in ("localhost", "127.0.0.1", "[::1]", os.uname().nodename):
            check(run([RINGRUN, "-H", own, "true"], env=env).code == 0, own)
        check(not os.path.exists(path + "/log"), "ssh was called for this host")
        result = run([RINGRUN, "-H", f"localhost:1,{net.names[0]}:2", EXCHANGE], env=env)
        check(result.code == 0 and result.out.count("ok") == 3, result)
        log = open(path + "/log").read()
        check(log.count("\n") == 1 and "BatchMode=yes" in log and "ConnectTimeout" in log, log)
        check(log.endswith(f"-- {net.names[0]} {RINGRUN} --agent\n"), log)


# ---- real ssh ------------------------------------------------------------------------------------------------------------

class Ssh:
    """sshd on hosts 1.. of a net, and how ringrun on host 0 gets there."""

    def __init__(self, net, path):
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
        if not sshd or not shutil.which("ssh"):
            harness.skip("no sshd here")
        os.makedirs("/run/sshd", exist_ok=True) # sshd wants it; left there, other runs may need it
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{path}/{name}"], check=True)
        shutil.copy(f"{path}/user.pub", f"{path}/authorized")
        with open(f"{path}/config", "w") as f:
            f.write(f"Port 2222\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nPidFile none\n"
                    "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n")
        self.rsh = (f"ssh -F none -p 2222 -i '{path}/user' -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
                    "-o LogLevel=ERROR -o BatchMode=yes")
        self.servers = [subprocess.Popen([*net.inside(i), sshd, "-D", "-e", "-f", f"{path}/config"],
                                         stderr=open(f"{path}/log{i}", "w")) for i in range(1, len(net.names))]
        self.net = net
        for i in range(1, len(net.names)):
            self.wait(f"10.77.0.{i + 1}", f"{path}/log{i}")

    def wait(self, address, log):
        for _ in range(200):
            if "2222" in run([*self.net.inside(0), "sh", "-c",
                              f"{sys.executable} -c \"import socket; socket.create_connection(('{address}', 2222), 1); "
                              "print(2222)\" 2>&1 | tail -1"]).out.replace("Errno", ""):
                return
            time.sleep(0.05)
        raise AssertionError("sshd does not come up: " + open(log).read())

    def argv(self, hosts, *args):
        leaks = ["-x", "LSAN_OPTIONS"] if "LSAN_OPTIONS" in os.environ else []
        return [*self.net.inside(0), RINGRUN, "--rsh", self.rsh, "-H", hosts, *leaks, *args]

    def close(self):
        for server in self.servers:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def ssh(count):
    with harness.Net(count) as net, harness.folder() as path:
        made = Ssh(net, path)
        try:
            yield made
        finally:
            made.close()


def case_ssh():
    """All that matters once more, over the real thing."""
    with ssh(3) as s:
        both = "10.77.0.2:2,[fd77::3]:2"
        result = run(s.argv(both, EXCHANGE, "5"))
        want = sorted(f"rank {i} of 4 local {i % 2} of 2 ok" for i in range(4))
        check(result.code == 0 and sorted(result.out.splitlines()) == want, result)
        result = run(s.argv("root@10.77.0.2:1,[fd77::3]:1", EXCHANGE, "fetch"))
        check(result.code == 0 and result.out.count("ok") == 2, result)
        result = run(s.argv(both, "sh", "-c", "[ $PMIX_RANK = 2 ] && kill -11 $$; exit 0"))
        check(result.code == 139 and "rank 2 on host fd77::3 died by signal 11" in result.err, result)
        result = run(s.argv(both, "no-such-program"))
        check(result.code == 127 and " cannot start: program " in result.err, result)
        result = run(s.argv("10.77.0.9:2", "true"), timeout=30)
        check(result.code == 125 and "cannot start on host 10.77.0.9" in result.err, result)


def case_ssh_arguments_and_environment():
    odd = ["", " ", "1   2   3", '"', "'", "\\", "\n", "$(id)", "*", ";", "-n", "--", "é", "a\\", "&", "`id`", "\x01"]
    with ssh(2) as s, harness.folder() as path:
        folder = path + "/a b'$x\n"
        os.mkdir(folder)
        env = harness.clean_env(PLAIN="not there", RING_TEST="there")
        result = run(s.argv("10.77.0.2:2", "--tag-output", "-x", "WEIRD=a b\n'\"\\$(x)=é", "-x", "A.B=dotted", "--wdir", folder,
                            sys.executable, "-c", SHOW, *odd, "x" * 100000), env=env)
        check(result.code == 0 and len(result.out.splitlines()) == 2, result)
        for line in result.out.splitlines():
            argv, seen, cwd = eval(line[len("[0] "):])
            check(argv == [os.fsencode(a) for a in odd] + [b"x" * 100000], argv[:len(odd)])
            check(cwd == os.fsencode(folder) and seen[b"PWD"] == cwd, cwd)
            check(seen[b"WEIRD"] == "a b\n'\"\\$(x)=é".encode() and seen[b"A.B"] == b"dotted", seen)
            check(seen[b"RING_TEST"] == b"there" and b"PLAIN" not in seen, seen)
            check(seen[b"PATH"] == os.environb[b"PATH"], seen)


def case_ssh_input_and_output():
    with ssh(2) as s:
        process = harness.start(s.argv("10.77.0.2:1", "sh", "-c", "cat; seq 1 200000 >&2"), stdin=-1, stdout=-1,
                                stderr=-1)
        data = "".join(f"{i}\n" for i in range(500000))
        out, err = process.communicate(data, 60)
        check(process.returncode == 0 and out == data, process.returncode, len(out), err[-300:])
        check(err == "".join(f"{i}\n" for i in range(1, 200001)), len(err))


def case_ssh_signals():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with ssh(3) as s:
            process = harness.start(s.argv("10.77.0.2:2,10.77.0.3:2", "sh", "-c", "sleep 101 & echo up; exec sleep 102"),
                                    stdout=-1, stderr=-1)
            for _ in range(4):
                check(process.stdout.readline() == "up\n")
            process.send_signal(number) # 'ip netns exec' has become ringrun
            process.wait(10)
            check(process.returncode == code, process.returncode, process.stderr.read())
            for _ in range(60):
                left = [name for name in harness.descendants().values() if name == "sleep"]
                if not left:
                    break
                time.sleep(0.05)
            check(not left, "after", number, left)
            process.stdout.close()
            process.stderr.close()


def case_ssh_connection_is_cut():
    with ssh(3) as s:
        process = harness.start(s.argv("10.77.0.2:2,10.77.0.3:2", "sh", "-c", "echo up; exec sleep 103"),
                                stdout=-1, stderr=-1)
        for _ in range(4):
            check(process.stdout.readline() == "up\n")
        os.kill(children(process)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
        check(process.returncode == 125, process.returncode, err)
        check("lost host 10.77.0.2 (ranks 0-1): ssh was killed by signal 9" in err, err)


if __name__ == "__main__":
    harness.main(globals())
