# SPDX-License-Identifier: Apache-2.0
"""ringrun on one host: options, exit codes, environment, folders, PMIx."""
import contextlib
import os
import re
import socket
import sys
import time

import harness
from harness import check, run, tool

RINGRUN = tool("tools/ringrun/ringrun")
EXCHANGE = tool("tests/multi/pmix_exchange")
HOST = os.uname().nodename

# Prints argv, the environment and the folder as Python literals, so that any byte can be compared.
SHOW = "import os,sys; print(repr(([os.fsencode(a) for a in sys.argv[1:]], dict(os.environb), os.getcwdb())))"


def ringrun(*args, **how):
    return run([RINGRUN, *args], **how)


def by_rank(script, n=4, *options, **how):
    """A job whose ranks run `script` in a shell, with $R their rank."""
    return ringrun("-n", str(n), *options, "sh", "-c", "R=$PMIX_RANK; " + script, **how)


def case_help_and_version():
    result = ringrun("--help")
    check(result.code == 0 and "Usage: ringrun" in result.out and result.err == "", result)
    for option in ("-n", "-H", "--hostfile", "--rsh", "-x", "--tag-output", "--timeout", "--wdir", "--version"):
        check(option in result.out, option, "is not in --help")
    check(re.fullmatch(r"ringrun \d+\.\d+\.\d+\n", ringrun("--version").out))


def case_wrong_options_are_named():
    for args, words in (
            (["-n", "0", "true"], ["-n", "'0'", "1 to"]),
            (["-n", "4x", "true"], ["-n", "'4x'"]),
            (["-n", "-3", "true"], ["-n", "'-3'"]),
            (["-n", "99999999999999999999", "true"], ["-n"]),
            (["-n"], ["requires an argument"]),
            (["--frobnicate", "true"], ["--frobnicate"]),
            ([], ["no program"]),
            (["-n", "2"], ["no program"]),
            (["--", ""], ["program's name is empty"]),
            (["--timeout", "soon", "true"], ["--timeout", "'soon'"]),
            (["--timeout", "0", "true"], ["--timeout", "'0'"]),
            (["--timeout", "nan", "true"], ["--timeout"]),
            (["--timeout", "-1", "true"], ["--timeout"]),
            (["-x", "=3", "true"], ["-x", "'=3'"]),
            (["-x", "NO_SUCH_VARIABLE", "true"], ["-x", "NO_SUCH_VARIABLE"]),
            (["--rsh", "", "true"], ["--rsh"]),
            (["--rsh", "ssh 'x", "true"], ["--rsh", "quote"]),
            (["--wdir", "", "true"], ["--wdir"]),
            (["-H", "", "true"], ["-H", "missing"]),
            (["-H", "a,,b", "true"], ["-H", "missing"]),
            (["-H", "a:0", "true"], ["-H", "'0'", "slots"]),
            (["-H", "a:x", "true"], ["'x'", "slots"]),
            (["-H", "-oProxyCommand=x", "true"], ["-oProxyCommand=x", "no host name"]),
            (["-H", "a b", "true"], ["'a b'"]),
            (["-H", "$(id)", "true"], ["$(id)"]),
            (["-H", "fd00::1", "true"], ["brackets"]),
            (["-H", "[fd00::1", "true"], ["brackets"]),
            (["-H", "localhost:2", "-n", "3", "true"], ["-n 3", "slots (2)"]),
            (["--hostfile", "/no/such/file", "true"], ["/no/such/file", "No such file"])):
        result = ringrun(*args)
        check(result.code == 125, args, result)
        check("ringrun: " in result.err and all(w in result.err for w in words), args, words, result)
        check(result.out == "", args, result)


def case_host_file():
    with harness.folder() as path:
        name = path + "/hosts"
        for text, words in (("localhost slots=2\nb slots=x\n", [":2:", "'x'"]),
                            ("# nothing\n\n", ["names no host"]),
                            ("a\nb c\n", [":2:", "'c' is not slots=N"]),
                            ("a slots=1 more\n", [":1:", "'more'"]),
                            ("a:1 slots=2\n", [":1:", "twice"]),
                            ("a\0b\n", [":1:", "byte 0"])):
            with open(name, "w") as f:
                f.write(text)
            result = ringrun("--hostfile", name, "true")
            check(result.code == 125 and all(w in result.err for w in [name, *words]), repr(text), result)
        with open(name, "w") as f:
            f.write("# two names of this host\r\n  localhost slots=2 # two\n\n127.0.0.1:1")
        result = by_rank("echo $R", 3, "--hostfile", name)
        check(result.code == 0 and sorted(result.out.split()) == ["0", "1", "2"], result)
        check(len(ringrun("--hostfile", name, "echo", "x").out.split()) == 3, "default is the sum of slots")


def case_number_of_ranks():
    cpus = len(os.sched_getaffinity(0))
    check(len(ringrun("echo", "x").out.split()) == cpus, "default is one rank a CPU")
    check(len(ringrun("-n", "7", "echo", "x").out.split()) == 7, "more ranks than CPUs")
    check(len(run(["taskset", "-c", str(min(os.sched_getaffinity(0))), RINGRUN, "echo", "x"]).out.split()) == 1,
          "one CPU allowed, one rank")


def case_exit_codes():
    for code in (0, 1, 3, 77, 125, 126, 127, 128, 255):
        result = by_rank(f"[ $R = 2 ] && exit {code}; exit 0")
        check(result.code == code, code, result)
        named = f"rank 2 on host {HOST} exited with code {code}"
        check(result.err.count(named) == (code != 0) and result.err.count("rank") == (code != 0), result)


def case_exit_by_signal():
    for number in (1, 2, 6, 9, 11, 13, 15):
        result = by_rank(f"[ $R = 1 ] && kill -{number} $$; exit 0")
        check(result.code == 128 + number, number, result)
        check(f"rank 1 on host {HOST} died by signal {number} (" in result.err, result)


def case_program_not_found():
    for program in ("no-such-program", "./no-such-program", "/no/such/program", "/etc/passwd/x"):
        result = ringrun("-n", "3", program)
        check(result.code == 127 and "rank " in result.err and f"host {HOST} cannot start" in result.err, result)
        check(program in result.err, result)
        check(len(result.err.splitlines()) <= 3, "every rank is not a line", result)


def case_program_not_executable():
    with harness.folder() as path:
        script = path + "/script"
        with open(script, "w") as f:
            f.write("#!/no/such/interpreter\n")
        os.chmod(script, 0o755)
        for program, words in (("/etc/passwd", "Permission denied"), ("/tmp", "Permission denied"),
                               (script, "interpreter")):
            result = ringrun("-n", "2", program)
            check(result.code == 126 and program in result.err and words in result.err, result)


def case_first_failure_counts():
    result = by_rank("[ $R = 3 ] && exit 5; sleep 0.7; [ $R = 1 ] && exit 6; exit 0")
    check(result.code == 5, result)
    lines = result.err.splitlines()
    check("rank 3" in lines[0] and "code 5" in lines[0], result)
    check("then rank 1" in lines[1] and "code 6" in lines[1] and len(lines) == 2, result)


def case_late_failure_counts():
    result = by_rank("[ $R = 0 ] && sleep 0.5 && exit 9; exit 0")
    check(result.code == 9, result)


def case_failure_ends_the_job():
    begun = time.monotonic()
    result = by_rank("[ $R = 1 ] && exit 4; exec sleep 60", 3)
    took = time.monotonic() - begun
    check(result.code == 4 and 4.5 < took < 9, took, result)
    check(result.err.count("rank") == 1, "ranks that we ended are not failures", result)


def case_failure_ends_the_stubborn():
    begun = time.monotonic()
    result = by_rank("trap '' TERM; [ $R = 1 ] && exit 4; while :; do sleep 1; done", 3)
    check(result.code == 4 and 6.5 < time.monotonic() - begun < 11, result)


def case_timeout():
    result = by_rank("exec sleep 60", 2, "--timeout", "0.5")
    check(result.code == 124 and "--timeout" in result.err and result.seconds < 5, result)
    check(by_rank("exit 3", 2, "--timeout", "30").code == 3)


def case_arguments_arrive_as_they_are():
    odd = ["", " ", "1   2   3", '"', "'", "\\", "\n", "$(id)", "*", ";", "-n", "--", "é", "a\\", "&", "|", "`id`",
           "x=y", "\x01", "~"]
    result = ringrun("-n", "2", "--tag-output", "--", sys.executable, "-c", SHOW, *odd, "x" * 100000)
    check(result.code == 0 and len(result.out.splitlines()) == 2, result)
    for line in result.out.splitlines():
        argv = eval(line[len("[0] "):])[0]
        check(argv == [os.fsencode(a) for a in odd] + [b"x" * 100000], argv[:len(odd)])


def case_environment():
    env = harness.clean_env(PLAIN="here", RING_TEST="r")
    env["A.B"] = "dotted"
    env["BASH_FUNC_x%%"] = "() {  echo; }"
    env["PMIX_NAMESPACE"] = "of-another-launcher"
    env["OMPI_COMM_WORLD_RANK"] = "7"
    result = ringrun("-n", "1", "-x", "WEIRD=a b\n'\"\\$(x)=é", "-x", "PLAIN", "-x", "EMPTY=", "-x", "PLAIN2==",
                     sys.executable, "-c", SHOW, env=env)
    check(result.code == 0, result)
    seen = eval(result.out)[1]
    for name, value in (("WEIRD", "a b\n'\"\\$(x)=é"), ("PLAIN", "here"), ("EMPTY", ""), ("PLAIN2", "="),
                        ("A.B", "dotted"), ("BASH_FUNC_x%%", "() {  echo; }"), ("RING_TEST", "r")):
        check(seen.get(os.fsencode(name)) == os.fsencode(value), name, seen.get(os.fsencode(name)))
    check(seen[b"PMIX_NAMESPACE"].startswith(b"ringrun-") and b"OMPI_COMM_WORLD_RANK" not in seen, seen)
    for name in (b"HWLOC_COMPONENTS", b"HWLOC_PLUGINS_PATH", b"PMIX_MCA_gds"):
        check(name not in seen, name, "is the agent's own")
    last = ringrun("-n", "1", "-x", "V=1", "-x", "V=2", "sh", "-c", "echo $V")
    check(last.out == "2\n", last)


def case_too_much_is_said():
    result = ringrun("-n", "1", *[f"-xV{i}=" + "x" * 100000 for i in range(15)], "true")
    check(result.code == 0, "1.5 MB of environment", result)
    result = ringrun("-n", "1", *[f"-xV{i}=" + "x" * 100000 for i in range(15)], "true", "y" * 100000, "z" * 100000)
    check(result.code in (0, 126), result)
    with harness.folder() as path: # one variable above the kernel's 128 KiB, by a file of ours
        result = run([sys.executable, "-c", f"import os; os.environ['A']='x'*100000; os.environ['PATH'] += ':{path}'; "
                      f"os.execv({RINGRUN!r}, ['ringrun', '-n', '1', '-xB=' + 'y' * 131060, 'true'])"])
        check(result.code in (0, 126) and (result.code == 0 or "too long" in result.err), result)


def case_working_folder():
    with harness.folder() as path:
        odd = path + "/a b'\"\n$x é"
        os.mkdir(odd)
        for options, cwd in ((["--wdir", odd], None), ([], odd), (["--wdir", os.path.basename(odd)], path)):
            result = ringrun("-n", "1", *options, sys.executable, "-c", SHOW, cwd=cwd)
            check(result.code == 0, options, result)
            _, env, folder = eval(result.out)
            check(folder == os.fsencode(odd) and env[b"PWD"] == os.fsencode(odd), folder)
        result = ringrun("-n", "2", "--wdir", path + "/none", "true")
        check(result.code == 125 and path + "/none" in result.err and "rank " in result.err, result)
        with open(path + "/prog", "w") as f:
            f.write("#!/bin/sh\necho ran\n")
        os.chmod(path + "/prog", 0o755)
        check(ringrun("-n", "1", "--wdir", path, "./prog").out == "ran\n", "relative to the folder")


def case_pmix_exchange():
    for n in (1, 2, 5, 16):
        result = ringrun("-n", str(n), EXCHANGE, "3")
        want = sorted(f"rank {i} of {n} local {i} of {n} ok" for i in range(n))
        check(result.code == 0 and sorted(result.out.splitlines()) == want and result.err == "", result)


def case_pmix_among_some():
    result = ringrun("-n", "5", EXCHANGE, "half")
    check(result.code == 0 and result.out.count("ok") == 5, result)


def case_pmix_get_of_nothing():
    result = ringrun("-n", "3", EXCHANGE, "nothing", timeout=20)
    check(result.code == 0 and result.seconds < 8 and "SUCCESS" not in result.out, result)
    check(len(result.out.splitlines()) == 3, result)


def case_pmix_rank_dies_in_fence():
    for who in (0, 2, 3):
        result = ringrun("-n", "4", EXCHANGE, "die", str(who))
        check(result.code == 137 and result.seconds < 4, who, result)
        check(f"rank {who} on host {HOST} died by signal 9" in result.err, who, result)
        check(": SUCCESS" not in result.out and len(result.out.splitlines()) == 3, who, result)


def case_pmix_rank_leaves_before_fence():
    result = ringrun("-n", "4", EXCHANGE, "absent", "1")
    check(result.code == 0 and result.seconds < 15 and ": SUCCESS" not in result.out, result)


def case_pmix_abort():
    for code, want in ((7, 7), (0, 1), (256, 1), (300, 44)):
        result = ringrun("-n", "4", EXCHANGE, "abort", "2", str(code))
        check(result.code == want and result.seconds < 4, code, result)
        check(f"rank 2 on host {HOST} aborted the job with code {code}: on purpose" in result.err, result)


def pmix_ports(pids):
    """TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    lines = open("/proc/net/tcp").read().splitlines()[1:]
    return {int(f[1].split(":")[1], 16) for f in map(str.split, lines) if f[3] == "0A" and f"socket:[{f[9]}]" in inodes}


def case_strangers_at_the_pmix_port():
    """Whoever connects and talks nonsense, or nothing, holds up nobody."""
    for words in (b"", b"x", bytes(7), b"\xff" * 100, b"GET / HTTP/1.0\r\n\r\n", b"x" * 100000):
        process = harness.start([RINGRUN, "-n", "2", "sh", "-c", f"echo up; read x; exec {EXCHANGE} fences 500"],
                                stdin=-1, stdout=-1, stderr=-1)
        for _ in range(2):
            check(process.stdout.readline() == "up\n")
        ports = pmix_ports(pid for pid, name in harness.descendants().items() if name == "ringrun")
        check(len(ports) == 1, "one port, and on loopback only", ports)
        strangers = []
        for _ in range(100):
            strangers.append(socket.create_connection(("127.0.0.1", *ports), 5))
            strangers[-1].setblocking(False)
            with contextlib.suppress(OSError):
                strangers[-1].send(words)
        begun = time.monotonic()
        out, err = process.communicate("\n", 20)
        check(process.returncode == 0 and out.count("ok") == 2 and time.monotonic() - begun < 2, words[:9], out, err)
        for stranger in strangers:
            stranger.close()


def case_many_fences():
    """No growth of descriptors in any process of the job while it fences."""
    process = harness.start([RINGRUN, "-n", "2", EXCHANGE, "fences", "6000"], stdout=-1, stderr=-1)
    seen = []
    while process.poll() is None and len(seen) < 200:
        counts = {}
        for pid, name in harness.descendants().items():
            if name == "ringrun":
                try:
                    counts[pid] = len(os.listdir(f"/proc/{pid}/fd"))
                except OSError:
                    pass
        seen.append(sum(counts.values()) if len(counts) == 2 else 0)
        time.sleep(0.02)
    out, err = process.communicate(timeout=60)
    check(process.returncode == 0 and out.count("ok") == 2, out, err)
    seen = [s for s in seen if s]
    first, later = seen[:len(seen) // 2], seen[len(seen) // 2:]
    check(first and max(later) <= max(first) + 2, "descriptors over time:", seen)


def case_ranks_have_no_strange_descriptors():
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    result = ringrun("-n", "2", "sh", "-c", "ls -l /proc/self/fd | awk '{print $9}' | xargs")
    os.close(read_end)
    os.close(write_end)
    for line in result.out.splitlines():
        check(set(line.split()) <= {"0", "1", "2", "3"}, "3 is the folder that ls reads", result)


def case_limits_and_masks_are_the_callers():
    script = "ulimit -Sn; grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f2"
    here = run(["sh", "-c", "ulimit -Sn 200; " + script])
    there = run(["sh", "-c", f"ulimit -Sn 200; exec {RINGRUN} -n 1 sh -c \"{script}\""])
    check(there.code == 0 and there.out == here.out, here, there)


def case_few_descriptors():
    result = run(["sh", "-c", f"ulimit -n 20; exec {RINGRUN} -n 64 true"])
    check(result.code == 125 and "open files are needed to start 64 ranks, the limit is 20" in result.err, result)


def case_closed_standard_descriptors():
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        result = run(["sh", "-c", f"{RINGRUN} -n 2 true {closed}"])
        check(result.code == 0, closed, result)


if __name__ == "__main__":
    harness.main(globals())
