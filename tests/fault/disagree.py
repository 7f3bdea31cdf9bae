# SPDX-License-Identifier: Apache-2.0
"""Ranks that disagree, stay away, stop, leave, abort, or are set up differently: an error that names who and what, on
all ranks, soon; and never a byte outside the buffers."""
import os
import re
import signal
import time

import harness
import jobs
from harness import check


def disagree(way, size, setting, mine, theirs, **how):
    with jobs.job(size, "mismatch", "odd=1", setting, env=jobs.WAYS[way], **how) as j:
        codes = j.wait(20)
        check(codes == [0] * size, f"{way} {setting}: exit codes", codes, j.story())
        for r in range(size):
            m = re.search(r"status (-\d+) after ([\d.]+) s: (.*)", j.text(r))
            check(m and m.group(1) == "-5", f"{way} {setting}: not a mismatch on rank {r}", j.story())
            check(float(m.group(2)) < 1, f"{way} {setting}: too late", j.story())
            check(mine in m.group(3) and theirs in m.group(3) and "rank 1 (" in m.group(3), m.group(3))


def every_field(way, size, **how):
    disagree(way, size, "other_count=999", "1000 float (sum)", "999 float (sum)", **how)
    disagree(way, size, "other_count=500000", "1000 float (sum)", "500000 float (sum)", **how)
    disagree(way, size, "other_count=0", "1000 float (sum)", "all_reduce of 0 float (sum)", **how)
    disagree(way, size, "other_dtype=4", "1000 float (sum)", "1000 int32 (sum)", **how)
    disagree(way, size, "other_redop=3", "1000 float (sum)", "1000 float (max)", **how)


def case_node():
    every_field("node", 2)
    every_field("node", 5)


def case_slots():
    every_field("slots", 4)


def case_shm_links():
    every_field("shm", 4)


def case_tcp():
    every_field("tcp", 2)
    every_field("tcp", 5)


def case_two_hosts():
    with harness.Net(2) as net:
        every_field("node", 4, net=net, place=[0, 0, 1, 1])


@harness.waits
def case_rank_that_never_arrives():
    """Ranks 2 and 3 of 4 are not there; the others say so at RING_TIMEOUT."""
    with jobs.job(4, "sums", present=[0, 1], env={"RING_TIMEOUT": "1500ms"}) as j:
        begun = time.monotonic()
        check(j.wait(10) == [3, 3], j.story())
        check(time.monotonic() - begun < 4, "took too long")
        for r in (0, 1):
            check(re.search(r"failed -7 .*2.*3", j.text(r)) and "RING_TIMEOUT" in j.text(r), j.story())


def stopped(**how):
    with jobs.job(4, "loop", "rounds=3000", "max=40000", **how) as j:
        j.await_text("looping")
        pid = j.pid(2)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5)
        check(all(p.poll() is None for p in j.processes.values()), "a rank ended while another was stopped", j.story())
        os.kill(pid, signal.SIGCONT)
        check(j.wait(60) == [0] * 4, j.story())
        said = "".join(j.text(r, "err") for r in (0, 1, 3))
        check("not responding: rank 2 (" in said, "no report", j.story())
        check("goes on after" in said, "no word that it goes on", j.story())


@harness.waits
def case_stopped_rank_node():
    stopped(env={**jobs.WAYS["node"], "RING_STALL_TIME": "1s"})


@harness.waits
def case_stopped_rank_slots():
    stopped(env={**jobs.WAYS["slots"], "RING_STALL_TIME": "1s"})


@harness.waits
def case_stopped_rank_shm():
    stopped(env={**jobs.WAYS["shm"], "RING_STALL_TIME": "1s"})


@harness.waits
def case_stopped_rank_tcp():
    stopped(env={**jobs.WAYS["tcp"], "RING_STALL_TIME": "1s"})


@harness.waits
def case_stopped_rank_on_another_host():
    with harness.Net(2) as net:
        stopped(env={"RING_STALL_TIME": "1s"}, net=net, place=[0, 0, 1, 1])


@harness.waits
def case_rank_that_is_stopped_for_long():
    """What many ranks say meanwhile does not make it lost."""
    hosts = {r: {"RING_HOST_ID": "other" if r == 24 else "one", "RING_LOG": "error"} for r in range(25)}
    with jobs.job(25, "loop", "rounds=300", "max=4000", per_rank=hosts) as j:
        j.await_text("looping")
        pid = j.pid(24)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(28)
        os.kill(pid, signal.SIGCONT)
        check(j.wait(60) == [0] * 25, j.story())


@harness.waits
def case_no_word_that_it_goes_on_after_the_deadline():
    for name, way in jobs.WAYS.items():
        with jobs.job(3, "lazy", "who=1", "seconds=6", env={**way, "RING_OP_TIMEOUT": "2s", "RING_STALL_TIME": "500ms"}) as j:
            check(j.wait(10, [0, 2]) == [3, 3], name, j.story())
            for r in (0, 2):
                said = j.text(r, "err")
                check("not responding: rank 1 (" in said and "goes on" not in said, name, j.story())


@harness.waits
def case_operation_deadline():
    with jobs.job(3, "lazy", "who=1", "seconds=6", env={"RING_OP_TIMEOUT": "1s"}) as j:
        check(j.wait(10, [0, 2]) == [3, 3], j.story())
        for r in (0, 2):
            check("failed -7" in j.text(r) and "RING_OP_TIMEOUT" in j.text(r) and "rank 1 (" in j.text(r), j.story())


def case_leaver():
    for way in jobs.WAYS.values():
        with jobs.job(3, "leaver", "who=1", env=way) as j:
            check(j.wait(10) == [3, 7, 3], j.story())
            check("failed -4 rank 1 (" in j.text(0) and "exit code 7" in j.text(2), j.story())


APART = {r: {"RING_HOST_ID": f"host{r}"} for r in range(3)}  # three hosts, as far as the ranks can tell


def seen_soon(mode, code, words, per_rank=None, env=None):
    with jobs.job(3, mode, "who=1", env=env, per_rank=per_rank) as j:
        j.await_text("joined")
        begun = time.monotonic()
        check(j.wait(10, [0, 2]) == [3, 3], mode, j.story())
        check(time.monotonic() - begun < 1.5, mode, "took too long", j.story())
        for r in (0, 2):
            check(f"failed {code} " in j.text(r) and words in j.text(r), mode, j.story())


def everywhere(mode, code, words):
    for way in jobs.WAYS.values():
        seen_soon(mode, code, words, env=way)
    seen_soon(mode, code, words, per_rank=APART)


def case_rank_that_becomes_another_program():
    everywhere("becomes", -4, "rank 1 (")


def case_rank_whose_child_lives_on():
    everywhere("survived", -4, "rank 1 (")


def case_rank_that_leaves_while_others_go_on():
    for per_rank in (None, APART):
        with jobs.job(3, "deserter", "who=1", per_rank=per_rank) as j:
            check(j.wait(5) == [3] * 3, j.story())
            for r in range(3):
                check("failed -5" in j.text(r) and "ring_comm_destroy()" in j.text(r) and "all_reduce of" in j.text(r),
                      j.story())


def case_abort():
    for way in jobs.WAYS.values():
        with jobs.job(4, "abort", "who=2", env=way) as j:
            check(j.wait(10) == [3] * 4, j.story())
            for r in range(4):
                check("failed -12 rank 2 (" in j.text(r) and "enough of this" in j.text(r), j.story())


def case_settings_that_must_agree():
    with jobs.job(3, "sums", per_rank={1: {"RING_SEGMENT": "64K"}}) as j:
        check(j.wait(10) == [3] * 3, j.story())
        for r in range(3):
            check("failed -5" in j.text(r) and "RING_SEGMENT" in j.text(r) and "64K" in j.text(r) and
                  "256K" in j.text(r), j.story())


def case_wrong_settings():
    program = harness.tool("tests/support/worker")
    for variable, value, accepted in (("RING_SEGMENT", "12Q", "1K to 1G"), ("RING_ALGO", "bingo", "ring"),
                                      ("RING_TRANSPORT", "tcp,pigeon", "pigeon"), ("RING_TIMEOUT", "0", "1ms to 24h"),
                                      ("RING_PORT_RANGE", "5-1", "LOW-HIGH"), ("RING_SOCKET_IFNAME", "a,,b", "eth,ib"),
                                      ("RING_TCP_SOCKETS", "17", "1 to 16"), ("RING_LOG", "loud", "warn")):
        r = harness.run([program, "sums"], env=harness.clean_env(**{variable: value}))
        check(r.code == 3 and "failed -8" in r.out and variable in r.out and value in r.out and accepted in r.out, r)
    r = harness.run([program, "sums"], env=harness.clean_env(RING_SEGMNT="64K"))
    check(r.code == 0 and "RING_SEGMENT" in r.err, "no warning with the nearest name", r)


def case_launcher_that_cannot_be_joined():
    program = harness.tool("tests/support/worker")
    check(harness.run([program, "sums"]).code == 0, "a job of one")
    for variable in ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "PMI_RANK", "WORLD_SIZE"):
        r = harness.run([program, "sums"], env=harness.clean_env(**{variable: "2"}))
        check(r.code == 3 and "failed -9" in r.out and variable in r.out, variable, r)
        r = harness.run([program, "sums"], env=harness.clean_env(**{variable: "2", "RING_BOOT": "single"}))
        check(r.code == 0, variable, "with RING_BOOT=single", r)


def few_descriptors(limited):
    """24 ranks, of which those in the shell condition `limited` may open 32 files: all hear what is needed, or for those
    that come after the maker of the ticket has given up, that it is gone."""
    with harness.folder() as path:
        program = harness.tool("tests/support/worker")
        shell = f'{limited} && ulimit -n 32; exec "{program}" sums --uid "{path}/ticket" --rank "$0" --size 24'
        ranks = [harness.start(["bash", "-c", shell, str(r)], stdout=open(f"{path}/{r}", "w")) for r in range(24)]
        told = lambda: [open(f"{path}/{r}").read() for r in range(24)]
        for p in ranks:
            check(p.wait(20) == 3, told())
        clear = [t for t in told() if "failed -13" in t and "ulimit -n" in t and "open files are needed" in t]
        gone = [t for t in told() if "failed -4 the maker of the ticket" in t]
        check(clear and len(clear) + len(gone) == 24, told())
        return len(clear)


def case_too_few_descriptors():
    check(few_descriptors('[ "$0" != 0 ]') == 24, "somebody did not hear it")


def case_too_few_descriptors_at_the_maker():
    few_descriptors('[ "$0" = 0 ]')


def case_link_for_which_no_descriptor_is_left():
    """The rank that wanted it says so to all, whatever the call was."""
    for how in range(4):
        with jobs.job(5, "starved", f"how={how}", env={"RING_TRANSPORT": "tcp", "RING_ALGO": "all_reduce@ring"}) as j:
            check(j.wait(10) == [3] * 5, how, j.story())
            for r in range(5):
                check("failed -13 rank 1 (" in j.text(r) and "Too many open files" in j.text(r), how, j.story())


def case_fork():
    for way in jobs.WAYS.values():
        jobs.finishes(2, "forked", env=way)


def case_create_and_destroy_many_times():
    for way in ("node", "tcp"):
        outs, _ = jobs.finishes(2, "churn", "rounds=150", env=jobs.WAYS[way], seconds=100)
        for text in outs:
            m = re.search(r"grown (-?\d+) descriptors, (-?\d+) KiB", text)
            check(m and int(m.group(1)) <= 0 and int(m.group(2)) < 1024, way, text)


if __name__ == "__main__":
    harness.main(globals())
