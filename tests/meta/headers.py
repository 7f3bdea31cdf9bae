#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone, as C11 and as C++, with every warning, with gcc and clang; every header inside
compiles alone too."""
import shutil

from meta import HEADERS, REPO, must, need, sources, text
import harness
from harness import check

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Werror", "-fsyntax-only", f"-I{REPO}/include"]


def compile_alone(compiler, header, *flags, language="c"):
    """Twice in one file, so that its guard is seen to work."""
    line = f"#include <{header}>\n"
    must([compiler, *flags, "-x", language, "-"], stdin=line + line + "int use;\n")


def each(compiler, *flags, language):
    need(compiler)
    for header in HEADERS:
        compile_alone(compiler, header, *STRICT, *flags, language=language)


def case_c11_gcc():
    each("cc", "-std=c11", "-pedantic-errors", "-Wstrict-prototypes", language="c")


def case_c11_clang():
    each("clang", "-std=c11", "-pedantic-errors", "-Wstrict-prototypes", language="c")


def case_cpp_gcc():
    for standard in ("c++11", "c++20"):
        each("c++", f"-std={standard}", "-pedantic-errors", language="c++")


def case_cpp_clang():
    each("clang++", "-std=c++17", "-pedantic-errors", language="c++")


def pmix_flags():
    found = harness.run(["pkg-config", "--cflags", "pmix"]) if shutil.which("pkg-config") else None
    return found.out.split() if found and not found.code else None


def case_inner_headers_alone():
    names = [p for p in sources("lib", "transports", "topology") if p.endswith(".h")]
    check(names, "no inner header found")
    pmix = pmix_flags()
    for name in names:
        if pmix is not None or "<pmix" not in text(name):
            compile_alone("cc", name, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                          f"-I{REPO}", f"-I{REPO}/include", *(pmix or []))


def case_public_headers_are_installed():
    listed = open(f"{REPO}/include/meson.build", encoding="utf8").read()
    missing = [h for h in HEADERS if f"'{h}'" not in listed]
    check(not missing, "not in include/meson.build:", missing)


harness.main(globals())
