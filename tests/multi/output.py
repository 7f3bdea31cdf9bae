# SPDX-License-Identifier: Apache-2.0
"""ringrun's standard input and output: nothing lost, nothing torn, nobody blocked."""
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time

import harness
from harness import check, run, tool

RINGRUN = tool("tools/ringrun/ringrun")

# Writes the bytes that are derived from a seed and the rank, in odd chunks, to both streams; the reader knows them too.
WRITER = """
import os, random, sys
def lines(seed, stream, rank, total, longest):
    r = random.Random(f"{seed}/{stream}/{rank}")
    out, size = [], 0
    while size < total:
        n = r.choice([0, 1, 5, 80, 81, r.randrange(longest)])
        line = (b"%d.%d:" % (rank, stream)) + r.randbytes(n).replace(b"\\n", b"\\r") + b"\\n"
        out.append(line)
        size += len(line)
    return b"".join(out)
def main(seed, total, longest):
    rank = int(os.environ["PMIX_RANK"])
    left = {s: lines(seed, s, rank, total, longest) for s in (1, 2)}
    r = random.Random(f"chunks{rank}")
    while left:
        stream = r.choice(list(left))
        n = os.write(stream, left[stream][:r.choice([1, 7, 100, 4096, 65536, 200000])])
        left[stream] = left[stream][n:]
        if not left[stream]:
            del left[stream]
"""
scope = {}
exec(WRITER, scope)
lines = scope["lines"]


def job(n, *args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more):
    return subprocess.Popen([RINGRUN, "-n", str(n), *args], env=harness.clean_env(), start_new_session=True,
                            stdin=stdin, stdout=stdout, stderr=stderr, **more)


def finish(process, timeout=60, data=None):
    try:
        out, err = process.communicate(data, timeout)
    except subprocess.TimeoutExpired:
        harness.stop(process)
        raise
    return process.returncode, out, err


def writers(n, total, longest, *options):
    code = WRITER + f"main({harness.SEED}, {total}, {longest})"
    return finish(job(n, *options, sys.executable, "-c", code))


def case_no_byte_lost():
    """Per rank and stream the bytes are the same and in order; chunks of ranks may mix, so ranks are tried one by one."""
    for total in (0, 10, 3_000_000):
        code, out, err = writers(1, total, 3000)
        check(code == 0 and out == lines(harness.SEED, 1, 0, total, 3000), total, len(out))
        check(err == lines(harness.SEED, 2, 0, total, 3000), total, len(err))


def untag(data):
    """{rank: bytes} of tagged output; every line must have a tag."""
    per_rank = {}
    check(data.endswith(b"\n") or not data, data[-100:])
    for line in data.split(b"\n")[:-1]:
        tag = re.match(rb"\[(\d+)\] ", line)
        check(tag, "a line without tag:", line[:100])
        per_rank.setdefault(int(tag[1]), []).append(line[tag.end():] + b"\n")
    return {rank: b"".join(parts) for rank, parts in per_rank.items()}


def case_tagged_lines_are_never_torn():
    total = 2_500_000
    code, out, err = writers(4, total, 200_000, "--tag-output")
    check(code == 0, code, err[-300:])
    for stream, data in ((1, out), (2, err)):
        seen = untag(data)
        for rank in range(4):
            check(seen[rank] == lines(harness.SEED, stream, rank, total, 200_000), stream, rank, len(seen[rank]))


def case_tagged_to_one_file():
    """2>&1: lines of both streams mix, but are whole."""
    total = 500_000
    code = WRITER + f"main({harness.SEED}, {total}, 5000)"
    _, out, _ = finish(job(3, "--tag-output", sys.executable, "-c", code, stderr=subprocess.STDOUT))
    for rank, data in untag(out).items():
        for stream in (1, 2):
            mine = [line for line in data.split(b"\n") if line.startswith(b"%d.%d:" % (rank, stream))]
            check(mine == lines(harness.SEED, stream, rank, total, 5000).split(b"\n")[:-1], rank, stream, len(mine))


def case_unfinished_last_line():
    code, out, err = finish(job(3, "--tag-output", "sh", "-c", "printf 'a\\nb'; printf c >&2"))
    check(sorted(out.split(b"\n")) == sorted([b""] + [b"[%d] %s" % (r, c) for r in range(3) for c in (b"a", b"b")]), out)
    check(sorted(err.split(b"\n")) == sorted([b""] + [b"[%d] c" % r for r in range(3)]), err)
    code, out, err = finish(job(1, "printf", "a\\nb"))
    check(out == b"a\nb", "without tags nothing is added", out)


def case_endless_line_is_cut():
    code, out, err = finish(job(1, "--tag-output", "sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"))
    check(code == 0 and untag(out)[0].replace(b"\n", b"") == b"x" * 5000000, len(out))
    check(out.count(b"\n") == 5, "cut at 1 MiB", out.count(b"\n"))


def case_output_of_the_dying():
    """What a rank wrote before it was killed is there, before the sentence about it."""
    _, out, err = finish(job(2, "sh", "-c", "yes | head -c 60000; yes | head -c 60000 >&2; kill -9 $$"))
    check(out == b"y\n" * 60000 and err.count(b"y\n") == 60000, len(out), err.count(b"y\n"))
    check(b"died by signal 9" in err.splitlines()[-2], err[-300:])


def case_slow_reader_has_bounded_memory():
    process = job(2, "sh", "-c", "yes | head -c 40000000")
    time.sleep(1)
    total = 0
    for pid, name in harness.descendants().items():
        if name == "ringrun":
            rss = re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())
            total = max(total, int(rss[1]))
    check(0 < total < 40000, "KiB:", total)
    code, out, _ = finish(process)
    check(code == 0 and len(out) == 80000000, code, len(out))


def case_slow_reader_does_not_stop_the_end():
    """Nobody reads our output, a rank fails: the job still ends within its time."""
    process = job(2, "sh", "-c", "[ $PMIX_RANK = 1 ] && sleep 0.5 && exit 3; yes")
    try:
        process.wait(0.1)
    except subprocess.TimeoutExpired:
        pass
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    check(process.returncode == 143 and time.monotonic() - begun < 4, process.returncode)
    finish(process)


def case_closed_pipe_ends_the_job():
    result = run(["bash", "-c", f"{RINGRUN} -n 2 yes | head -1; echo ${{PIPESTATUS[0]}}"])
    check(result.out == "y\n141\n" and result.seconds < 4, result)


def case_full_disk_is_named():
    check(stat.S_ISCHR(os.stat("/dev/full").st_mode), "/dev/full is no device here: somebody has replaced it")
    with open("/dev/full", "w") as full:
        code, _, err = finish(job(2, "sh", "-c", "echo x; exec sleep 20", stdout=full))
    check(code == 125 and b"standard output" in err and b"No space left" in err, code, err)


def case_input_goes_to_rank_0():
    data = random.Random(harness.SEED).randbytes(5_000_000)
    code, out, err = finish(job(3, "sh", "-c", "cat", stdin=subprocess.PIPE), data=data)
    check(code == 0 and out == data, code, len(out), err)
    code, out, err = finish(job(3, "--tag-output", "wc", "-c", stdin=subprocess.PIPE), data=data)
    check(untag(out) == {0: b"5000000\n", 1: b"0\n", 2: b"0\n"}, out)


def case_input_from_file_and_nowhere():
    with open(__file__, "rb") as f:
        _, out, _ = finish(job(2, "cat", stdin=f))
    check(out == open(__file__, "rb").read(), len(out))
    code, out, _ = finish(job(2, "cat", stdin=subprocess.DEVNULL))
    check(code == 0 and out == b"", out)


def case_input_that_nobody_reads():
    """Rank 0 does not read: ringrun takes no more than its window, and ends when rank 0 does."""
    read_end, write_end = os.pipe()
    process = job(2, "sleep", "1", stdin=read_end)
    os.close(read_end)
    os.set_blocking(write_end, False)
    taken = 0
    for _ in range(50):
        try:
            taken += os.write(write_end, b"x" * 65536)
        except BlockingIOError:
            time.sleep(0.01)
    code, _, err = finish(process, 10)
    os.close(write_end)
    check(code == 0 and taken < 1_000_000, code, taken, err)


def case_input_left_open():
    """The job ends although our standard input stays open."""
    read_end, write_end = os.pipe()
    code, _, _ = finish(job(2, "true", stdin=read_end), 10)
    check(code == 0)
    code, out, _ = finish(job(2, "sh", "-c", "[ $PMIX_RANK = 1 ] || exec <&-; sleep 0.3; echo ok", stdin=read_end), 10)
    check(out == b"ok\nok\n", out)
    os.close(read_end)
    os.close(write_end)


def case_leftover_writer_does_not_hold_the_job():
    """A process that a rank leaves behind still has the pipe: the job ends, and it with it."""
    process = job(2, "sh", "-c", "(sleep 60; echo late) & echo now")
    code, out, _ = finish(process, 10)
    check(code == 0 and out == b"now\nnow\n", out)


if __name__ == "__main__":
    harness.main(globals())
