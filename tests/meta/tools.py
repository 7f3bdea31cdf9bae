#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ring_perf, ring_info and compare as programs: output that parsers know, errors that people understand."""
import json
import os
import re
import stat
import subprocess
import sys

import harness
from harness import check, clean_env, tool
from meta import REPO

ROW = re.compile(r"^ +(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)" +
                 r" +(\d+\.?\d*|N/A) +(\d+\.?\d*|N/A) +(\d+\.?\d*|N/A) +(\d+|N/A)" * 2 + "$")
COLLS = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "barrier",
         "reduce_scatterv", "all_gatherv", "all_to_allv", "gatherv", "scatterv", "sendrecv")
ROOTED = ("reduce", "broadcast", "gather", "scatter", "gatherv", "scatterv")
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")


def perf(*options, code=0, **env):
    result = harness.run([tool("perf/ring_perf/ring_perf"), *options], env=clean_env(**{"RING_BOOT": "single", **env}))
    check(result.code == code, options, result)
    return result


def info(*options, code=0, **env):
    result = harness.run([tool("tools/ring_info/ring_info"), *options], env=clean_env(**env))
    check(result.code == code, options, result)
    return result


def case_rows_as_parsers_know_them():
    result = perf("all_reduce", "-b", "0", "-e", "1000", "-i", "500", "-d", "all", "-o", "all", "-n", "3")
    rows = [ROW.match(line) for line in result.out.splitlines() if not line.startswith("#")]
    check(all(rows), result)
    check(len(rows) == 3 * (8 * 11 + 6 * 5), len(rows), "rows")
    check(all(row[9] == row[13] == "0" and row[5] == "-1" for row in rows), result)
    check("# Out of bounds values : 0 OK" in result.out and "# Avg bus bandwidth" in result.out, result)
    check(result.err == "", "not silent:", result)


def rows_of(result):
    rows = [ROW.match(line) for line in result.out.splitlines() if not line.startswith("#")]
    check(rows and all(rows), result)
    return rows


def case_sizes():
    def sizes(*options):
        lines = perf("all_reduce", "-n", "1", "-w", "0", *options).out.splitlines()
        return [int(line.split()[0]) for line in lines if not line.startswith("#")]
    check(sizes("-S", "8,1K,64") == [8, 1024, 64])
    check(sizes("-S", "8:3,2K:30") == [8, 2048])
    check(sizes("-b", "8", "-e", "128", "-f", "4") == [8, 32, 128])
    check(sizes("-b", "1K", "-e", "3K", "-i", "1K") == [1024, 2048, 3072])
    check(sizes("-b", "7", "-e", "7") == [4], "sizes are whole elements")


def case_json():
    with harness.folder() as folder:
        perf("all_reduce", "-b", "8", "-e", "64", "-f", "8", "-o", "sum,avg", "-J", f"{folder}/out.json")
        with open(f"{folder}/out.json", encoding="utf8") as file:
            data = json.load(file)
    check([(r["size"], r["redop"]) for r in data["results"]] == [(8, "sum"), (64, "sum"), (8, "avg"), (64, "avg")], data)
    for row in data["results"]:
        check(row["count"] * 4 == row["size"] and row["type"] == "float" and row["root"] == -1, row)
        check(row["transport"] and row["algorithm"] and row["collective"] == "all_reduce", row)
        for place in ("out_of_place", "in_place"):
            check(row[place]["nwrong"] == 0 and 0 < row[place]["p50"] <= row[place]["p99"], row)
            check({"time", "alg_bw", "bus_bw", "steady", "processor"} <= set(row[place]), row)
    check(data["out_of_bounds"] == 0 and "average_bus_bandwidth" in data and data["config"]["ranks"] == 1, data)


def case_listed_sizes_are_said():
    with harness.folder() as folder:
        out = perf("all_reduce", "-S", "1K,8,64", "-n", "1", "-w", "0", "-J", f"{folder}/out.json").out
        with open(f"{folder}/out.json", encoding="utf8") as file:
            config = json.load(file)["config"]
    check("minBytes 8 maxBytes 1024 " in out, out)
    check((config["min_bytes"], config["max_bytes"]) == (8, 1024), config)


def case_json_into_what_is_no_plain_file():
    """A device stays a device and a link a link; a full one is an error."""
    with harness.folder() as folder:
        os.symlink("there", f"{folder}/link")
        perf("all_reduce", "-b", "8", "-e", "8", "-J", f"{folder}/link")
        check(os.path.islink(f"{folder}/link") and json.load(open(f"{folder}/there", encoding="utf8")), "the link")
    perf("all_reduce", "-b", "8", "-e", "8", "-J", "/dev/null")
    check(stat.S_ISCHR(os.stat("/dev/null").st_mode), "the device was replaced")
    check("No space left" in perf("all_reduce", "-b", "8", "-e", "8", "-J", "/dev/full", code=1).err, "a full device")


def case_unchecked_is_said():
    with harness.folder() as folder:
        out = perf("all_reduce", "-b", "8", "-e", "8", "-c", "0", "-J", f"{folder}/out.json").out
        data = json.load(open(f"{folder}/out.json", encoding="utf8"))
    check(sum(line.count("N/A") for line in out.splitlines() if not line.startswith("#")) == 2, out)
    check("# Out of bounds values : N/A, no result was checked" in out and "OK" not in out, out)
    check(data["out_of_bounds"] is None, data)


def case_command_lines_of_nccl_tests():
    perf("all_reduce", "-b", "8", "-e", "8", "-g", "1", "-t", "1")
    perf("all_reduce", "-b", "8", "-e", "8", "--ngpus", "1", "--nthreads", "1")
    for option in ("-g", "-t", "--ngpus", "--nthreads"):
        result = perf("all_reduce", option, "8", code=2)
        check("\"8\" is not accepted" in result.err and "ringrun -n" in result.err, result)


def case_json_is_refused_before_the_run():
    for ranks in (1, 3):
        result = job(ranks, "-b", "8", "-e", "8", "-J", "/no/such/folder/out.json")
        check(result.code == 2 and "# Collective" not in result.out, result)
        check(result.err.count("/no/such/folder/out.json\" cannot be written") == 1, result)
    with harness.folder() as folder:
        with open(f"{folder}/out.json", "w", encoding="utf8") as file:
            file.write("what a run before has left")
        job(2, "-b", "8", "-e", "8", "-r", "5", "-J", f"{folder}/out.json")
        check(os.path.getsize(f"{folder}/out.json") > 20, "lost for a run that did not begin")
        os.mkfifo(f"{folder}/pipe")
        reader = harness.start(["cat", f"{folder}/pipe"], stdout=subprocess.PIPE)
        perf("all_reduce", "-b", "8", "-e", "8", "-J", f"{folder}/pipe")
        check("results" in json.loads(reader.communicate(timeout=20)[0]), "through a pipe")


def case_every_collective_alone():
    """Sizes, blocks and columns as nccl-tests means them."""
    for coll in COLLS:
        rows = rows_of(perf(coll, "-b", "0", "-e", "1000", "-i", "1000", "-n", "1"))
        check(len(rows) == (1 if coll == "barrier" else 2), coll, len(rows))
        for row in rows:
            check(row[4] == ("sum" if coll in REDUCING else "none") and row[5] == ("0" if coll in ROOTED else "-1"), coll, row)
            check((row[13] == "N/A") == (coll in ("barrier", "sendrecv")), coll, row)
            check((row[9] == "N/A") == (coll == "barrier"), coll, row)
    check(len(rows_of(perf("all", "-b", "8", "-e", "8", "-n", "1"))) == len(COLLS), "all")


def case_every_collective_on_ranks():
    """Through the node, and over links; every root, blocks that do not divide the size, nothing, and a JSON row for each."""
    for env in ({}, {"RING_NODE": "off", "RING_TRANSPORT": "tcp"}):
        with harness.folder() as folder:
            result = job(3, "-S", "0,4,1000,70K", "-n", "2", "-w", "1", "-d", "int16,float", "-r", "-1", "-J",
                         f"{folder}/out.json", coll="all", **env)
            check(result.code == 0 and result.out.count("# Out of bounds values : 0 OK") == 1, env, result)
            with open(f"{folder}/out.json", encoding="utf8") as file:
                data = json.load(file)
        for coll in COLLS:
            rows = [r for r in data["results"] if r["collective"] == coll]
            roots = {0, 1, 2} if coll in ROOTED else {-1}
            check({r["root"] for r in rows} == roots, coll, rows)
            check(len(rows) == (1 if coll == "barrier" else 2 * 4 * len(roots)), coll, len(rows))
            check(all((r["in_place"] is None) == (coll in ("barrier", "sendrecv")) for r in rows), coll, rows)
        gathered = [r for r in data["results"] if r["collective"] == "all_gather" and r["type"] == "float"]
        check([(r["size"], r["count"]) for r in gathered] == [(0, 0), (0, 0), (996, 83), (71676, 5973)], gathered)


def case_every_way_of_calling():
    for options, way, memory in ((["-s"], "started", "malloc"), (["-p"], "persistent", "malloc"), (["-m", "3"], "group", "malloc"),
                                 (["-s", "-m", "4", "-B", "6"], "started", "malloc"),
                                 (["-M", "registered"], "blocking", "registered"),
                                 (["-p", "-M", "alloc", "-B", "3"], "persistent", "alloc")):
        with harness.folder() as folder:
            result = job(2, "-S", "8,5000", "-n", "4", "-w", "1", *options, "-J", f"{folder}/out.json", coll="all")
            check(result.code == 0 and "# Out of bounds values : 0 OK" in result.out, options, result)
            with open(f"{folder}/out.json", encoding="utf8") as file:
                config = json.load(file)["config"]
        check(config["way"] == way and config["memory"] == memory, config)


def case_checker_finds_errors_in_every_collective():
    """The last rank damages an element, a guard, or its input: it is seen where there is one."""
    for coll in COLLS:
        if coll == "barrier":
            continue
        result = job(2, "-S", "64", "-n", "1", "-r", "1", "--inject-error", "2", coll=coll)
        check(result.code == 1 and f"rank 1, {coll}, " in result.err and "index 2, expected" in result.err, coll, result)
        check("around the result" in job(2, "-S", "64", "-n", "1", "-r", "1", "--inject-error", "guard",
                                                            coll=coll).err, coll, "a guard")


def case_checker_finds_errors():
    for where, said in (("3", "index 3, expected"), ("guard", "around the result"), ("send", "of the send buffer")):
        result = perf("all_reduce", "-b", "64", "-e", "64", "--inject-error", where, code=1)
        check(said in result.err and "rank 0" in result.err, result)
        check(re.search(r"# Out of bounds values : [12] FAILED", result.out), result)


def case_wrong_options_are_explained():
    for options, said in ((["-b", "8Q"], ("-b", "8Q", "K, M or G")), (["-o", "maxx"], ("maxx", "sum, prod")),
                          (["-d", "flot"], ("flot", "int8")), (["-f", "1"], ("-f",)), (["-n"], ("-n",)),
                          (["-b", "9", "-e", "8"], ("9", "8")), (["--nonsense"], ("--nonsense",)), (["-r", "5"], ("5", "rank")),
                          (["-r", "-2"], ("-2", "-1 or all")), (["-M", "heap"], ("heap", "malloc, registered or alloc")),
                          (["-S", "8:"], ("8:", "8:20000,64K:500")), (["-S", "8,,9"], ("8,,9", "sizes such as")),
                          (["-m", "0"], ("-m", "from 1 to 1024")), (["-B", "2", "-m", "3"], ("-m", "-B 3 or more")),
                          (["-s", "-p"], ("-s", "-p", "give one of them")),
                          (["-o", "band", "-d", "float"], ("-o and -d", "integers"))):
        result = perf("all_reduce", *options, code=2)
        check(all(s in result.err for s in said) and result.out == "", options, result)
    check("all_reduce" in perf(code=2).err)
    check("all_reduce" in perf("all_to_none", code=2).err)


def case_refuses_to_run_alone_under_a_launcher():
    for name, value in (("OMPI_COMM_WORLD_SIZE", 4), ("SLURM_NTASKS", 4), ("PMI_SIZE", 4), ("WORLD_SIZE", 4), ("PMIX_RANK", 0)):
        result = harness.run([tool("perf/ring_perf/ring_perf"), "all_reduce", "-b", "8", "-e", "8"],
                             env=clean_env(**{name: value}))
        check(result.code == 1 and name in result.err and "# Collective" not in result.out, name, result)


def job(ranks, *options, coll="all_reduce", **env):
    return harness.run([tool("tools/ringrun/ringrun"), "-n", str(ranks), tool("perf/ring_perf/ring_perf"), coll, *options],
                       env=clean_env(**env))


def case_four_ranks_by_every_way():
    for env in ({}, {"RING_NODE": "off"}, {"RING_NODE": "off", "RING_TRANSPORT": "tcp"}):
        with harness.folder() as folder:
            result = job(4, "-b", "4", "-e", "300K", "-f", "7", "-o", "all", "-d", "int8,double", "-n", "2", "-J",
                         f"{folder}/out.json", **env)
            check(result.code == 0 and result.out.count("# Out of bounds values : 0 OK") == 1, env, result)
            with open(f"{folder}/out.json", encoding="utf8") as file:
                data = json.load(file)
        check(data["out_of_bounds"] == 0 and data["config"]["ranks"] == 4, data)
        check(sorted(d["rank"] for d in data["devices"]) == [0, 1, 2, 3], data)
        check(len({d["pid"] for d in data["devices"]}) == 4, data)
        check(env.get("RING_TRANSPORT", "shm") in {r["transport"] for r in data["results"]}, env, data)


def case_one_wrong_rank_fails_all():
    result = job(3, "-b", "64", "-e", "64", "--inject-error", "5")
    check(result.code == 1 and "rank 2, all_reduce, 64 bytes" in result.err and "index 5, expected" in result.err, result)
    check(re.search(r"# Out of bounds values : 2 FAILED", result.out), result)


def case_wrong_options_are_said_once():
    result = job(4, "-b", "8Q")
    check(result.code == 2 and result.err.count("8Q") == 1, result)


def case_timeout_ends_all_ranks():
    result = job(2, "-b", "4M", "-e", "4M", "-n", "1000000", "-T", "1")
    check(result.code == 1 and "--timeout 1 has passed" in result.err and result.seconds < 20, result)


def case_help_names_every_option():
    text = perf("--help").out
    check(all(f"-{o}, " in text for o in "befiwncodrJCTagtMBmspS"), text)
    check(all(coll in text for coll in COLLS), text)


def case_info_lists_settings():
    out = info(RING_SEGMENT="64K").out
    check(re.search(r"RING_SEGMENT +64K +from the environment", out), out)
    check(re.search(r"RING_TIMEOUT +1min +default; 1ms to", out), out)
    check(re.search(r"RING_TIMEOUT +5s +from the environment; default 1min", info(RING_TIMEOUT="5").out), out)
    for part in ("libring ", "Build", "Host", "Transports", "Algorithms", "kernels", "Settings"):
        check(part in out, part, out)


def case_info_reports_wrong_settings():
    result = info(code=1, RING_SEGMENT="64Q")
    check(re.search(r"RING_SEGMENT +64Q +REFUSED", result.out), "what was given, not the default", result)
    check("WRONG" in result.out and "1K to 1G" in result.out and "RING_TIMEOUT" in result.out, result)


def case_info_reports_what_names_nothing():
    """The library refuses these when a communicator is made; no range holds them."""
    for name, value in (("RING_TRANSPORT", "tpc"), ("RING_TRANSPORT", "shm,"), ("RING_ALGO", "rnig"), ("RING_PORT_RANGE", "5-1"),
                        ("RING_SOCKET_IFNAME", "eth0,"), ("RING_TCP_CONGESTION", "none such")):
        result = info(code=1, **{name: value})
        check(re.search(rf"WRONG: {name}\b.*\"{value}\"", result.out) and "1 setting is wrong" in result.err, result)
    result = info(code=1, RING_ALGO="rnig", RING_TRANSPORT="tpc", RING_SEGMENT="64K")
    check(result.out.count("WRONG") == 2 and re.search(r"RING_SEGMENT +64K", result.out), result)
    check("WRONG" not in info(RING_TRANSPORT="shm,tcp", RING_ALGO="ring").out)


def case_info_warns_of_unknown_settings():
    for more, code in (({}, 0), ({"RING_ALGO": "rnig"}, 1), ({"RING_CMA": "2"}, 1)):
        result = info(code=code, RING_SEGMNET="64K", **more)
        check("RING_SEGMNET" in result.err and "RING_SEGMENT" in result.err, more, result)


def case_info_says_that_output_failed():
    for options in ([], ["--version"], ["schedule", "all_reduce", "--algo", "ring", "--size", "2"]):
        result = harness.run(["sh", "-c", 'exec "$@" >/dev/full', "sh", tool("tools/ring_info/ring_info"), *options],
                             env=clean_env())
        check(result.code == 1 and "cannot write to standard output" in result.err, options, result)


def case_info_prints_schedules():
    names = re.search(r"\nAlgorithms.*?\n(.*?)\n\n", info().out, re.S)[1].splitlines()
    check(names[0].split()[0] == "node", names)  # direct loads and stores: nothing to print a schedule of
    for name, coll in (line.split()[:2] for line in names[1:]):
        size, per_host = {"hier": ("4", "2"), "rabenseifner": ("4", "1")}.get(name, ("2", "1"))
        call = ["schedule", coll, "--algo", name, "--size", size, "--per-host", per_host, "--count", "1000"]
        one = info(*call, "--rank", "1").out
        both = info(*call).out
        alone = coll in ("send", "recv")  # rank 0, the root, is the one that the other talks to
        check(one and one in both and (alone or both.count("rank") > one.count("rank")), name, one, both)
        check("ranges are in bytes" in one, one)


def case_info_explains_errors():
    for options, said in ((["schedule"], "the collective is missing"), (["schedule", "all_reduce"], "--size is missing"),
                          (["schedule", "all_reduce", "--size", "2"], "--algo is missing: it takes one of ring"),
                          (["schedule", "all_reduce", "--size"], "the value of --size is missing"), (["nonsense"], "nonsense"),
                          (["schedule", "all_reduce", "--size", "2", "--algo", "none"], "ring"),
                          (["schedule", "all_reduce", "--size", "2", "--algo", "ring", "--rank", "2"], "--rank"),
                          (["schedule", "reduce", "--size", "2", "--algo", "tree", "--root", "2"], "--root 2 is not a rank"),
                          (["schedule", "all_reduce", "--size", "x"], "--size"),
                          (["schedule", "allreduce"], "one of all_reduce, reduce, broadcast"),
                          (["schedule", "all_gatherv", "--size", "2", "--algo", "ring"], "it runs those of all_gather, ask"),
                          (["schedule", "all_reduce", "--size", "2", "--algo", "node"], "node is direct loads and stores")):
        result = info(*options, code=2)
        check(said in result.err and not result.out, options, result)
    hier = ["schedule", "all_reduce", "--algo", "hier", "--size", "4"]
    check("it would with --per-host 2" in info(*hier, code=1).err, "how ranks come to share a host")
    check("--per-host" not in info("schedule", "all_reduce", "--algo", "exchange", "--size", "4", code=1).err)


def compare(build, folder, *more):
    return harness.run([sys.executable, f"{REPO}/perf/compare/compare", "--build", build, "--json", f"{folder}/out.json", *more],
                       timeout=20)


def case_compare_says_at_once_what_is_not_built():
    """It would measure the others for minutes, and compare them with nothing."""
    programs = ("tools/ringrun/ringrun", "perf/ring_perf/ring_perf", "perf/limits/limits")
    with harness.folder() as folder:
        result = compare(f"{folder}/no build", folder)
        check(result.code == 1 and result.out == "" and result.seconds < 5, result)
        check(all(p in result.err for p in programs), result)
        check(f"meson setup --buildtype=release '{folder}/no build' {REPO} && ninja -C '{folder}/no build'\n" in result.err, result)
        for path in ("build.ninja", *programs[:2]):
            os.makedirs(os.path.dirname(f"{folder}/b/{path}"), exist_ok=True)
            with open(f"{folder}/b/{path}", "w", encoding="utf8") as file:
                os.chmod(file.fileno(), 0o755)
        result = compare(f"{folder}/b", folder)
        check(result.code == 1 and [p in result.err for p in programs] == [False, False, True], result)
        check("meson setup" not in result.err and f"ninja -C {folder}/b\n" in result.err, result)
        check(not os.path.exists(f"{folder}/out.json"), "a file of a run that did not begin")


harness.main(globals())
