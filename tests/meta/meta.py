# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share: the repository, its files, a scratch project."""
import os
import shutil
import subprocess

import harness

REPO = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = harness.BUILD
HEADERS = sorted(f"ring/{n}" for n in os.listdir(f"{REPO}/include/ring") if n.endswith(".h"))


def sources(*folders):
    """C files and headers below folders, as paths from the repository."""
    for top in folders:
        for folder, _, names in os.walk(os.path.join(REPO, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".in")):
                    yield os.path.relpath(os.path.join(folder, name), REPO)


def text(path):
    with open(os.path.join(REPO, path), encoding="utf8") as file:
        return file.read()


def need(*commands):
    for command in commands:
        if not shutil.which(command):
            harness.skip(f"{command} is not installed")


def library():
    """The shared library of the build."""
    path = os.path.join(BUILD, "libring.so.0")
    harness.check(os.path.exists(path), "no libring.so.0 in", BUILD)
    return path


def sanitized():
    """The linker arguments that a program needs when the library of this build has a sanitizer."""
    needed = subprocess.run(["readelf", "-d", library()], capture_output=True, text=True, check=True).stdout
    flags = [f for name, f in (("libasan", "address"), ("libubsan", "undefined"), ("libtsan", "thread")) if name in needed]
    return [f"-fsanitize={','.join(flags)}"] if flags else []


def must(argv, **more):
    result = harness.run(argv, **more)
    harness.check(result.code == 0, " ".join(argv), result)
    return result.out
