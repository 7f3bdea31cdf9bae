#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user does: install, find with pkg-config, compile, link, run; or take the project as a Meson subproject."""
import glob
import json
import os
import re
import subprocess

from meta import BUILD, REPO, must, need, sanitized, text
import harness
from harness import check, clean_env

PROGRAM = r"""
#include <ring/ring.h>
#include <stdio.h>
int main(void)
{
    ring_comm_t *comm;
    float x[3] = {1, 2, 3}, y[3] = {0, 0, 0};
    if (ring_comm_create(&comm) || ring_all_reduce(comm, x, y, 3, RING_FLOAT, RING_SUM) || ring_comm_destroy(comm))
        return fprintf(stderr, "%s\n", ring_last_error()), 1;
    return printf("%s %g %g %g\n", ring_version(), (double)y[0], (double)y[1], (double)y[2]) < 0;
}
"""


def version():
    return re.search(r"version: '([^']+)'", open(f"{REPO}/meson.build", encoding="utf8").read())[1]


def install(folder):
    """Install below folder; returns the folder that stands for the prefix."""
    must(["meson", "install", "-C", BUILD, "--destdir", folder, "--no-rebuild"])
    prefix = subprocess.run(["meson", "introspect", "--buildoptions", BUILD], capture_output=True, text=True, check=True)
    return folder + re.search(r'"name": "prefix", "value": "([^"]*)"', prefix.stdout)[1]


def prefix_of(build):
    shown = must(["meson", "introspect", "--buildoptions", build])
    return next(option["value"] for option in json.loads(shown) if option["name"] == "prefix")


def case_readme_sets_the_prefix_of_a_configured_build_folder():
    """As tools/try leaves one, where meson setup ignores options; in a new one the same commands do."""
    need("meson")
    lines = re.findall(r"^    (meson (?:setup|configure) build\b.*?)(?: +#.*)?$", text("README.md"), re.M)
    check(any("-Dprefix=$P" in line for line in lines), "README.md sets no prefix:", lines)
    with harness.folder() as folder:
        for line in lines[:1] + lines:
            must(line.replace("$P", f"{folder}/place").replace("setup build", f"setup {folder}/build {REPO}").replace(
                "configure build", f"configure {folder}/build").split())
        check(prefix_of(f"{folder}/build") == f"{folder}/place", "the prefix is", prefix_of(f"{folder}/build"))


def one(pattern):
    found = glob.glob(pattern, recursive=True)
    check(len(found) == 1, pattern, "is", found)
    return found[0]


def case_install_and_use_with_pkg_config():
    need("pkg-config", "cc", "meson")
    with harness.folder() as folder:
        prefix = install(folder)
        pc = one(f"{prefix}/**/ring.pc")
        env = clean_env(PKG_CONFIG_PATH=os.path.dirname(pc), PKG_CONFIG_SYSROOT_DIR=folder, RING_BOOT="single")
        check(must(["pkg-config", "--modversion", "ring"], env=env).strip() == version(), "wrong version in ring.pc")
        flags = must(["pkg-config", "--cflags", "--libs", "ring"], env=env).split()
        lib = os.path.dirname(one(f"{prefix}/**/libring.so.0"))
        with open(f"{folder}/user.c", "w", encoding="utf8") as file:
            file.write(PROGRAM)
        must(["cc", "-Wall", "-Werror", f"{folder}/user.c", "-o", f"{folder}/user", *sanitized(), *flags], env=env)
        out = must([f"{folder}/user"], env={**env, "LD_LIBRARY_PATH": lib})
        check(out == f"{version()} 1 2 3\n", out)


def case_what_is_installed():
    need("meson")
    with harness.folder() as folder:
        prefix = install(folder)
        names = {os.path.relpath(os.path.join(f, n), prefix) for f, _, ns in os.walk(prefix) for n in ns}
        for wanted in ("include/ring/ring.h", "bin/ring_info", "bin/ring_perf"):
            check(wanted in names, wanted, "is not among", sorted(names))
        strange = [n for n in names if not re.match(r"(bin|include/ring|share|lib[^/]*(/[^/]*-linux-[^/]*)?(/pkgconfig)?)/", n)]
        check(not strange, "unexpected files:", strange)
        check(not [n for n in names if n.endswith(".a") or "test" in n], "private things are installed")


def case_installed_tools_find_the_library():
    need("meson")
    with harness.folder() as folder:
        prefix = install(folder)
        lib = os.path.dirname(one(f"{prefix}/**/libring.so.0"))
        out = must([f"{prefix}/bin/ring_perf", "--version"], env=clean_env(LD_LIBRARY_PATH=lib))
        check(version() in out, out)


def case_subproject_with_everything_optional_off():
    need("meson", "cc", "ninja")
    with harness.folder() as folder:
        os.makedirs(f"{folder}/subprojects")
        os.symlink(REPO, f"{folder}/subprojects/libring")
        with open(f"{folder}/meson.build", "w", encoding="utf8") as file:
            file.write("project('user', 'c')\nring = dependency('ring', fallback: ['libring', 'ring_dep'])\n"
                       "executable('user', 'user.c', dependencies: ring)\n")
        with open(f"{folder}/user.c", "w", encoding="utf8") as file:
            file.write(PROGRAM)
        env = clean_env(RING_BOOT="single", PKG_CONFIG_PATH="")
        must(["meson", "setup", "--force-fallback-for=ring", f"{folder}/b", folder], env=env)
        targets = json.loads(must(["meson", "introspect", "--targets", f"{folder}/b"], env=env))
        names = {t["name"] for t in targets if t["type"] == "executable"}
        check(names == {"user"}, "a subproject builds programs that nobody asked for:", names)
        plan = json.loads(must(["meson", "introspect", "--installed", f"{folder}/b"], env=env))
        check(not [path for path in plan.values() if "/bin/" in path], "a subproject installs programs:", plan)
        must(["meson", "configure", f"{folder}/b", *(f"-Dlibring:{off}" for off in ("pmix=disabled", "tools=false", "tests=disabled")),
              "-Dlibring:werror=true"], env=env)
        must(["ninja", "-C", f"{folder}/b"], env=env, timeout=240)
        check(must([f"{folder}/b/user"], env=env) == f"{version()} 1 2 3\n", "wrong result")


harness.main(globals())
