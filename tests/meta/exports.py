#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shared library shows to the outside."""
import re
import subprocess

from meta import HEADERS, library, text
import harness
from harness import check


def output(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def exported():
    lines = [line.split() for line in output("nm", "-D", "--defined-only", library()).splitlines()]
    return {words[-1].split("@")[0] for words in lines if words[-2] != "A"}


def declared():
    """Functions marked RING_API in the public headers."""
    found = set()
    for header in HEADERS:
        code = re.sub(r"/\*.*?\*/|^\s*#[^\n]*", " ", text(f"include/{header}"), flags=re.S | re.M)
        found.update(re.findall(r"\bRING_API\b[^;(]*?\b(\w+)\s*\(", code))
    return found


def case_exports_are_what_the_headers_declare():
    check(exported() == declared(), "exported but not declared:", sorted(exported() - declared()),
          "declared but not exported:", sorted(declared() - exported()))


def case_only_ring_names():
    wrong = sorted(name for name in exported() if not name.startswith("ring_"))
    check(not wrong, "exported without the prefix ring_:", wrong)


def case_soname():
    check("[libring.so.0]" in output("readelf", "-d", library()), "the soname is not libring.so.0")


def case_no_executable_stack_no_text_relocations():
    stack = [line for line in output("readelf", "-lW", library()).splitlines() if "GNU_STACK" in line]
    check(len(stack) == 1 and "E" not in stack[0].split()[-2], "executable stack:", *stack)
    check("TEXTREL" not in output("readelf", "-d", library()), "the library has text relocations")


def case_no_writable_global_names():
    """Nobody outside can reach a variable of ours."""
    symbols = [line.split() for line in output("nm", "-D", "--defined-only", library()).splitlines()]
    wrong = [words[-1] for words in symbols if words[-2] in "BbDdGgSs"]
    check(not wrong, "exported variables:", wrong)


harness.main(globals())
