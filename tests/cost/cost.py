#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What hot paths cost in instructions, counted by valgrind's callgrind, against bounds.txt: a regression shows on a machine
whose clock says nothing.

A program does the same thing a few times and many times; the difference is what one costs, without start and end.  More than
15 % above the bound fails.  Bounds are those of gcc at -O2 on x86-64 under valgrind, which has no AVX-512, so that the AVX2
kernels run; other builds are skipped.  After a change that is meant, RING_COST_RECORD=1 writes what was counted into
bounds.txt."""
import os
import re
import shutil

import harness
from harness import check, skip

HERE = os.path.dirname(os.path.realpath(__file__))
BOUNDS = f"{HERE}/bounds.txt"
TOLERANCE = 0.15
FEW, MANY = 1000, 4000


def bounds():
    with open(BOUNDS, encoding="ascii") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {name: int(count) for name, count in rows}


def record(name, count):
    with open(BOUNDS, encoding="ascii") as file:
        text = file.read()
    line, found = f"{name:24} {count}", re.search(rf"(?m)^{name} .*$", text)
    text = text.replace(found[0], line) if found else f"{text}{line}\n"
    with open(BOUNDS, "w", encoding="ascii") as file:
        file.write(text)


def count(program, words, times, **env):
    """Instructions of a whole run."""
    argv = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *words, str(times)]
    result = harness.run(argv, timeout=120, env=harness.clean_env(**env))
    found = re.search(r"Collected : (\d+)", result.err)
    check(result.code == 0 and found, "callgrind gave no count", result)
    return int(found[1])


def need_valgrind():
    if not shutil.which("valgrind"):
        skip("valgrind is not installed")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # who waits gives way at once: a run is like any other


def allocations(program, words, times, **env):
    """Calls of malloc and its like in a whole run."""
    result = harness.run(["valgrind", "--leak-check=no", program, *words, str(times)], timeout=120, env=harness.clean_env(**env))
    found = re.search(r"total heap usage: ([\d,]+) allocs", result.err)
    check(result.code == 0 and found, "valgrind gave no count of allocations", result)
    return int(found[1].replace(",", ""))


def cost(name, program, *words, few=FEW, many=MANY, **env):
    need_valgrind()
    if os.environ.get("RING_COST_BUILD") != "gcc -O2 x86_64":
        skip(f"bounds are for gcc -O2 x86_64 without sanitizers; this is {os.environ.get('RING_COST_BUILD')}")
    program = harness.tool(program)
    each = round((count(program, words, many, **env) - count(program, words, few, **env)) / (many - few))
    if os.environ.get("RING_COST_RECORD"):
        record(name, each)
    bound = bounds().get(name)
    check(bound, f"{name} has no bound in tests/cost/bounds.txt; {each} were counted")
    print(f"# {name}: {each} instructions, bound {bound}, {100 * (each / bound - 1):+.1f} %")
    if each < bound * (1 - TOLERANCE):
        print(f"# {name} has become cheaper: write {each} into tests/cost/bounds.txt, so that it stays so")
    check(each <= bound * (1 + TOLERANCE), f"{name} costs {each} instructions, more than {bound} + {100 * TOLERANCE:.0f} %. "
          "callgrind_annotate shows where; when it is meant, RING_COST_RECORD=1 writes the new bound")


def case_call_of_a_job_of_one():
    cost("call", "tests/cost/cost", "call")


def case_node_8_bytes_blocking():
    """Both ranks."""
    cost("node-blocking", "tests/cost/cost", "blocking")


def case_node_8_bytes_started():
    cost("node-started", "tests/cost/cost", "operation")


def case_shm_8_bytes():
    cost("shm-started", "tests/cost/cost", "operation", RING_NODE="off", RING_TRANSPORT="shm")


def case_tcp_8_bytes():
    cost("tcp-started", "tests/cost/cost", "operation", RING_NODE="off", RING_TRANSPORT="tcp")


def case_engine_messages():
    """A ring of two ranks in segments of 8 bytes over a transport that does nothing: 66 messages."""
    cost("engine-66-messages", "tests/sim/engine_cost", "ring", "64", few=100, many=600)


def case_kernels():
    """Of 1000 elements, and of 2."""
    for name in ("sum-float", "sum-bfloat16", "sum-few-float"):
        cost(name, "tests/cost/cost", name, few=100, many=600)


def case_operations_allocate_nothing():
    """Whatever the compiler: beyond a few that come with the first operations, none for a call that blocks; for one that is
    started the two handles at most."""
    need_valgrind()
    if "-O" not in os.environ.get("RING_COST_BUILD", ""):
        skip("sanitizers and valgrind do not go together")
    program = harness.tool("tests/cost/cost")
    ways = [{}, {"RING_NODE": "off", "RING_TRANSPORT": "shm"}, {"RING_NODE": "off", "RING_TRANSPORT": "tcp"}]
    for words, most, envs in ((["call"], 0, [{}]), (["blocking"], 0, ways), (["operation"], 2, ways)):
        for env in envs:
            extra = allocations(program, words, 250, **env) - allocations(program, words, 50, **env)
            print(f"# {words[0]} {env}: {extra / 200:g} allocations for one")
            check(extra <= most * 200 + 20, words, env, f"{extra / 200:g} allocations for one operation instead of {most}")


harness.main(globals())
