# SPDX-License-Identifier: Apache-2.0
"""The guests themselves: devices, bandwidth, two hosts, and libring in them by TCP."""
import os
import re
import shlex

import guest
import harness
import softroce_lost
import softroce_paths
import softroce_verbs
from harness import check, tool


@guest.needs(1)
def case_device_is_there(guests):
    guest.installed("ibv_devinfo", "ibverbs-utils")
    out = guests.must("ibv_devinfo -d rxe0")
    check(re.search(r"state:\s+PORT_ACTIVE", out) and re.search(r"link_layer:\s+Ethernet", out), out)
    check({g.interface for g in guests[0].gids["rxe0"]} == {"v0"}, guests[0].gids)
    check([g.gid for g in guests[0].gids["rxe1"] if ":ffff:" in g.gid] == ["0000:0000:0000:0000:0000:ffff:0a4d:0002"],
          guests[0].gids)


@guest.needs(1)
def case_commands_are_commands(guests):
    """Exit codes, both outputs, input, folder, environment; what is written stays there, but for /share."""
    result = guests.shell("echo to out; echo to err >&2; exit 7")
    check((result.code, result.out, result.err) == (7, "to out\n", "to err\n"), result)
    check(guests.run(["no-such-program"]).code == 127)
    check(guests.shell("kill -9 $$").code == 128 + 9)
    check(guests.run(["cat"], stdin="a\nb").out == "a\nb")
    check(guests.must("pwd; echo $WORD; id -u", cwd="/usr", env={"WORD": "here"}) == "/usr\nhere\n0\n")
    guests.must("echo there >/share/file; echo lost >/etc/softroce-test")
    with open(f"{guests.share}/file", encoding="ascii") as file:
        check(file.read() == "there\n")
    check("softroce-test" not in os.listdir("/etc"), "a guest has written to the machine")
    check(len(guests.must("seq 100000")) == 588895, "output is cut")


def verified(guests, *options, ranks=2, timeout=60, **env):
    """An all-reduce that checks its results; what was printed."""
    argv = [tool("tools/ringrun/ringrun"), "-n", str(ranks), *options, tool("perf/ring_perf/ring_perf"), "all_reduce",
            "-S", "8,64K,1M", "-n", "3", "-w", "1"]
    result = guests.run(argv, timeout, env=harness.clean_env(RING_TRANSPORT="tcp", **env))
    check(result.code == 0 and "# Out of bounds values : 0 OK" in result.out, result)
    return result.out


@guest.needs(1)
def case_ring_perf_over_tcp(guests):
    out = verified(guests, RING_NODE="off")
    check(len(re.findall(r"^ +\d+ .* sum ", out, re.M)) == 3, out)


@guest.needs(2)
def case_two_guests(guests):
    guest.installed("ibv_rc_pingpong", "ibverbs-utils")
    words = [f"ibv_rc_pingpong -d rxe0 -g {guests[i].gid_index()} -p 18515" for i in range(2)]
    out = guest.pair(guests, words[1], f"{words[0]} {guests[1].address}", (1, 0), 18515, 60)
    check("1000 iters in" in out, out)


@guest.needs(2)
def case_the_other_guest_is_reached(guests):
    out = guests.must(f"hostname; {shlex.quote(guest.RSH)} guest1 'hostname; exit 3'; echo $?")
    check(out == "guest0\nguest1\n3\n", out)
    check(guests.must("hostname", guest=1) == "guest1\n")
    check(guests.must(f"seq 100000 | {shlex.quote(guest.RSH)} guest1 cat | tail -n 1") == "100000\n")
    guests.must("echo word >/share/word")
    check(guests.must("cat /share/word", guest=1) == "word\n")


@guest.needs(2)
def case_ringrun_across_guests(guests):
    out = verified(guests, "--rsh", guest.RSH, "-H", "guest0:1,guest1:1")
    check("guest0" in out and "guest1" in out, out)


if __name__ == "__main__":
    # In one process, because boots are what costs.
    guest.main({**globals(), **vars(softroce_verbs), **vars(softroce_paths), **vars(softroce_lost)})
