# SPDX-License-Identifier: Apache-2.0
"""ringrun ends as people expect, and leaves nothing behind. (The harness checks the latter after every case.)"""
import contextlib
import os
import pty
import random
import signal
import time

import harness
from harness import check, run, tool

RINGRUN = tool("tools/ringrun/ringrun")
EXCHANGE = tool("tests/multi/pmix_exchange")

# A rank with a child and a grandchild of its own session, all of which ignore what can be ignored.
STUBBORN = "trap '' INT TERM HUP QUIT; sleep 100 & setsid sleep 100 & echo up; while :; do sleep 1; done"
POLITE = "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM; trap 'echo got HUP; exit 0' HUP; " \
         "trap 'echo got USR1' USR1; echo up; while :; do sleep 0.05; done"


def begin(script, n=3, *options):
    """A job, when all of its ranks have said "up"."""
    process = harness.start([RINGRUN, "-n", str(n), *options, "sh", "-c", script], stdout=-1, stderr=-1)
    for _ in range(n):
        check(process.stdout.readline() == "up\n")
    return process


def end(process, timeout):
    begun = time.monotonic()
    out, err = process.communicate(timeout=timeout)
    return out, err, time.monotonic() - begun


def agents_of(process):
    children = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
    return [int(c) for c in children]


def case_signal_reaches_the_ranks():
    for number, name in ((signal.SIGINT, "INT"), (signal.SIGTERM, "TERM"), (signal.SIGHUP, "HUP")):
        process = begin(POLITE)
        process.send_signal(number)
        out, err, took = end(process, 10)
        check(process.returncode == 128 + number and took < 2, process.returncode, took)
        check(out == f"got {name}\n" * 3, out)
        check("exited" not in err, "how they end is not their fault", err)


def case_signal_and_the_stubborn():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        process = begin(STUBBORN)
        process.send_signal(number)
        _, err, took = end(process, 10)
        check(process.returncode == 128 + number and 1.5 < took < 4, process.returncode, took, err)


def case_second_signal_kills():
    process = begin(STUBBORN)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, _, took = end(process, 10)
    check(process.returncode == 130 and took < 1.5, process.returncode, took)


def case_other_signals_go_through():
    process = begin(POLITE)
    process.send_signal(signal.SIGUSR1)
    for _ in range(3):
        check(process.stdout.readline() == "got USR1\n")
    process.send_signal(signal.SIGTERM)
    end(process, 10)


def case_ignored_signal_stays_ignored():
    """nohup: neither ringrun nor the ranks hear HUP."""
    process = harness.start(["sh", "-c", f"trap '' HUP; exec {RINGRUN} -n 2 sh -c 'echo up; sleep 0.7; echo end'"],
                            stdout=-1, stderr=-1)
    check(process.stdout.readline() == "up\n")
    process.send_signal(signal.SIGHUP)
    out, err, _ = end(process, 10)
    check(process.returncode == 0 and out.count("end") == 2, out, err)


def case_kill_of_ringrun():
    for script in (POLITE, "echo up; exec sleep 100"):
        process = begin(script)
        process.kill()
        process.wait(5)
        process.stdout.close()
        process.stderr.close()


def case_kill_of_ringrun_and_the_stubborn():
    process = begin(STUBBORN)
    process.kill()
    process.wait(5)
    process.stdout.close()
    process.stderr.close()


def case_kill_of_the_agent():
    process = begin(STUBBORN)
    for agent in agents_of(process):
        os.kill(agent, signal.SIGKILL)
    _, err, took = end(process, 10)
    check(process.returncode == 125 and took < 4, process.returncode, took, err)
    check(f"lost host {os.uname().nodename} (ranks 0-2)" in err and "killed by signal 9" in err, err)


def case_kill_of_both():
    """Ranks die with the agent. (What they have started themselves nobody can find then.)"""
    process = begin("echo up; exec sleep 100")
    agents = agents_of(process)
    process.send_signal(signal.SIGSTOP)
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
    process.kill()
    process.wait(5)
    process.stdout.close()
    process.stderr.close()


def case_term_of_the_agent():
    process = begin(POLITE)
    for agent in agents_of(process):
        os.kill(agent, signal.SIGTERM)
    _, err, took = end(process, 10)
    check(process.returncode == 125 and took < 3 and "signal 15" in err, process.returncode, took, err)


def case_kill_at_any_moment():
    """KILL and TERM of ringrun at random points of the start, with ranks that use PMIx."""
    random.seed(harness.SEED)
    for _ in range(20):
        process = harness.start([RINGRUN, "-n", "8", EXCHANGE, "fences", "100000"], stdout=-1, stderr=-1)
        time.sleep(random.random() * 0.1)
        process.send_signal(random.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        begun = time.monotonic()
        process.communicate(timeout=10)
        check(time.monotonic() - begun < 3.5, "it took", time.monotonic() - begun, process.returncode)


def case_stopped_rank_is_ended():
    process = begin("echo up; kill -STOP $$; sleep 100", 2)
    process.send_signal(signal.SIGTERM)
    _, _, took = end(process, 10)
    check(process.returncode == 143 and took < 3, process.returncode, took)


def case_stop_and_continue():
    process = begin("i=0; echo up; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; echo end", 2)
    process.send_signal(signal.SIGTSTP)
    time.sleep(0.3)
    states = [open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
              for pid, name in harness.descendants().items() if name in ("sh", "ringrun")]
    check(states.count("T") >= 3, "ringrun and both ranks are stopped", states)
    time.sleep(1.5)
    check(process.poll() is None, "it waits")
    process.send_signal(signal.SIGCONT)
    out, _, _ = end(process, 10)
    check(process.returncode == 0 and out == "end\nend\n", out)


def case_terminal_is_closed():
    parent, child = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with contextlib.suppress(OSError):
            import fcntl
            import termios
            fcntl.ioctl(child, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(child, fd)
        os.closerange(3, 100)
        os.execve(RINGRUN, ["ringrun", "-n", "2", "sh", "-c", "echo up; sleep 100"], harness.clean_env())
    os.close(child)
    seen = b""
    while seen.count(b"up") < 2:
        seen += os.read(parent, 100)
    os.close(parent)
    begun = time.monotonic()
    _, status = os.waitpid(pid, 0)
    check(os.waitstatus_to_exitcode(status) in (129, 141) and time.monotonic() - begun < 5, status)


def case_typing_in_a_terminal():
    """Input comes from a terminal, Ctrl-C ends the job once."""
    parent, child = pty.openpty()
    pid = os.fork()
    if pid == 0:
        import fcntl
        import termios
        os.setsid()
        fcntl.ioctl(child, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(child, fd)
        os.closerange(3, 100)
        os.execve(RINGRUN, ["ringrun", "-n", "2", "sh", "-c", "echo up; read x; echo got $x; sleep 100"],
                  harness.clean_env())
    os.close(child)
    seen = b""
    while seen.count(b"up") < 2:
        seen += os.read(parent, 100)
    os.write(parent, b"word\n")
    while b"got word" not in seen:
        seen += os.read(parent, 100)
    os.write(parent, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(parent)
    check(os.waitstatus_to_exitcode(status) == 130, status)


def case_fork_bomb_of_leftovers():
    """Children of children of ranks, in sessions of their own, end with the job."""
    script = "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 100 & sleep 100') & done; sleep 0.2; echo up; sleep 0.2"
    result = run([RINGRUN, "-n", "3", "sh", "-c", script])
    check(result.code == 0 and result.out == "up\n" * 3 and result.seconds < 5, result)


def case_short_jobs():
    """Many ranks that end at once, again and again. (By hand: RING_TEST_ROUNDS=500.)"""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(int(os.environ.get("RING_TEST_ROUNDS", "30"))):
        result = run([RINGRUN, "-n", "64", "true"])
        check(result.code == 0 and result.err == "" and result.out == "", result)
    check(len(os.listdir("/proc/self/fd")) == before)


def case_short_failing_jobs():
    for _ in range(10):
        check(run([RINGRUN, "-n", "16", "false"]).code == 1)
        check(run([RINGRUN, "-n", "16", "sh", "-c", "kill -9 $$"]).code == 137)


if __name__ == "__main__":
    harness.main(globals())
