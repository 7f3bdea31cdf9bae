#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom.  This is the table of CONTRIBUTING.md; a part may also include itself."""
import re

from meta import sources, text
import harness
from harness import check

BASE = {"include", "lib/base"}
LOWER = BASE | {"topology", "transports", "lib/sched", "lib/reduce", "lib/boot"}
INSIDE = LOWER | {"lib/coll", "lib/node", "lib/comm"}
MAY = {
    "include": {"include"},
    "lib/base": BASE,
    "topology": BASE,
    "transports": BASE,
    "lib/reduce": BASE,
    "lib/boot": BASE,
    "lib/sched": BASE | {"lib/reduce", "transports"},  # the engine runs programs over the boundary transport.h
    "lib/coll": LOWER,
    "lib/node": BASE | {"lib/reduce"},
    "lib/comm": LOWER | {"lib/coll", "lib/node"},
    "lib": INSIDE,  # lib/api.c
    "tools": {"include"},
    "tools/ring_info": INSIDE,
    "perf": {"include"},
}
# Of a folder that others may include, the only headers they may use.
BOUNDARY = {"transports": {"transports/transport.h"}}


def part(path):
    """The longest row of the table that holds this path."""
    rows = [p for p in MAY if path.startswith(p + "/")]
    return max(rows, key=len) if rows else None


def includes():
    """(file, included path) for everything that includes something of ours."""
    for path in sources("include", "lib", "transports", "topology", "tools", "perf"):
        folder = path.rsplit("/", 1)[0]
        for kind, name in re.findall(r'^\s*#\s*include\s+(["<])([^">]+)[">]', text(path), re.M):
            if name.startswith("ring/"):
                yield path, "include/" + name
            elif kind == '"':
                yield path, name if "/" in name else f"{folder}/{name}"


def case_every_include_is_allowed():
    wrong = []
    for path, target in includes():
        own, other = part(path), part(target)
        if own is None or other is None:
            wrong.append(f"{path}: {target} belongs to no row of the table")
        elif own == other or path.rsplit("/", 1)[0] == target.rsplit("/", 1)[0]:
            continue
        elif other not in MAY[own]:
            wrong.append(f"{path} includes {target}; {own} may include {', '.join(sorted(MAY[own]))}")
        elif target not in BOUNDARY.get(other, {target}):
            wrong.append(f"{path} includes {target}; of {other} others may include {', '.join(BOUNDARY[other])}")
    check(not wrong, "\n".join(wrong))


def case_transports_do_not_know_each_other():
    wrong = [f"{p} includes {t}" for p, t in includes()
             if p.count("/") >= 2 and p.startswith("transports/") and t.startswith("transports/")
             and t != "transports/transport.h" and t.split("/")[1] != p.split("/")[1]]
    check(not wrong, "\n".join(wrong))


def case_folders_make_no_circle():
    below = {}
    for path, target in includes():
        own, other = path.rsplit("/", 1)[0], target.rsplit("/", 1)[0]
        if own != other:
            below.setdefault(own, set()).add(other)

    def walk(folder, trail):
        check(folder not in trail, "circle:", " -> ".join([*trail[trail.index(folder):], folder] if folder in trail else []))
        for other in sorted(below.get(folder, ())):
            walk(other, [*trail, folder])

    for folder in sorted(below):
        walk(folder, [])


def case_environment_is_read_in_one_place():
    """Settings come from lib/base/conf.c; only who looks for the launcher may look at the environment besides."""
    allowed = ("lib/base/conf.c", "lib/boot/", "tools/", "perf/")
    wrong = [p for p in sources("lib", "transports", "topology", "tools", "perf")
             if re.search(r"\b(secure_)?getenv\s*\(|\benviron\b", text(p)) and not p.startswith(allowed)]
    check(not wrong, "these read the environment:", *wrong)


harness.main(globals())
