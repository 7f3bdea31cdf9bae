#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md keeps its promises: its C programs compile and run, the files and commands it names are there."""
import os
import re
import stat

from meta import BUILD, REPO, must, sanitized, text
import harness
from harness import check, clean_env, skip


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", text("README.md"), re.M | re.S)


def case_c_examples():
    programs = blocks("c")
    if not programs:
        skip("README.md has no C program")
    with harness.folder() as folder:
        for number, program in enumerate(programs):
            name = f"{folder}/example{number}"
            with open(f"{name}.c", "w", encoding="utf8") as file:
                file.write(program)
            whole = re.search(r"\bmain\s*\(", program)
            must(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused", f"-I{REPO}/include",
                  *sanitized(), *(["-o", name] if whole else ["-c", "-o", f"{name}.o"]), f"{name}.c",
                  *([f"-L{BUILD}", "-lring", f"-Wl,-rpath,{BUILD}"] if whole else [])])
            if whole:
                must([name], env=clean_env(RING_BOOT="single"))


def case_files_it_names():
    named = set(re.findall(r"\b((?:tools|tests|perf|lib|include|transports|topology)/[\w./-]*\w)", text("README.md")))
    missing = sorted(n for n in named if not os.path.exists(os.path.join(REPO, n)) and
                     not os.path.exists(os.path.join(BUILD, n)))
    check(not missing, "README.md names what is not there:", missing)


def case_commands_can_be_run():
    for command in ("tools/try", "tools/check", ".ci/run"):
        mode = os.stat(os.path.join(REPO, command)).st_mode
        check(mode & stat.S_IXUSR, command, "is not executable")
    for script in ("tools/try", "tools/check", "tools/prepare.sh", ".ci/run"):
        must(["sh", "-n", os.path.join(REPO, script)])


harness.main(globals())
