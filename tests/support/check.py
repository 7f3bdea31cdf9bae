#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build libring in several ways, run the tests of each, and count.  Called by tools/check, which has installed what is
needed: check.py REPOSITORY [BUILD...].

Cases are counted, not programs: TAP lines and Criterion's synthesis are read from what a program printed; a program that
prints neither is one case.  A build is one case too.  Exit code 0 only when something ran and nothing failed.

Most tests of processes sleep, one at a time.  So the next builds are made beside them, and those whose tests do not look at
the clock are tested there too, with what the processors have left: the kernel takes a processor from an idle thread at once
when a test wants it."""
import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

# name, folder, options, environment, suites (None: all), timed (whether tests look at the clock)
HERE = os.path.dirname(os.path.realpath(__file__))
Build = collections.namedtuple("Build", "name folder options env suites timed")
IN_PROCESS = ("unit", "sim", "conformance", "verbs", "sanitize")
WITH_THREADS = ("unit", "conformance", "sanitize")  # a simulation has one thread, and so has a verbs link
BUILDS = [
    Build("normal", "build", [], {}, None, True),
    Build("address", "build-address", ["-Db_sanitize=address,undefined", "-Db_lundef=false"], {}, IN_PROCESS,
          True),
    Build("thread", "build-thread", ["-Db_sanitize=thread", "-Db_lundef=false"], {}, WITH_THREADS, True),
    Build("clang", "build-clang", ["-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false"], {"CC": "clang"},
          ("fuzz",), False),
    Build("arm", "build-arm", ["--cross-file", f"{HERE}/../arm/aarch64.ini", "-Dkernels_only=true"], {}, None,
          False),
]
STRICT = "-Dwerror=true"  # not for users: their compiler may know warnings that ours does not
PATIENCE = "3"  # times the limits of the tests, which are for a machine that does nothing else
IDLY = ["chrt", "--idle", "0"] if shutil.which("chrt") else ["nice", "-n", "19"]
IDLE_PATIENCE = "20"
ENVIRONMENT = {
    "LSAN_OPTIONS": f"suppressions={HERE}/lsan.supp:print_suppressions=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "ASAN_OPTIONS": "detect_stack_use_after_return=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
}


class Count:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def say(text):
    print(f"== {text}", flush=True)


def tap(text):
    count, reasons, said = Count(), [], ""
    for line in text.splitlines():
        said = line[len("# skipped:"):].strip() if line.startswith("# skipped:") else said
        if re.match(r"not ok\b", line):
            count.failed += 1
        elif re.match(r"ok\b", line):
            skip = re.search(r"#\s*SKIP\b\s*(.*)", line, re.I)
            if skip:
                count.skipped += 1
                reasons.append(f"{line.split('#')[0].strip()}: {skip[1] or said}")
            else:
                count.passed += 1
    return count, reasons


def criterion(text):
    count = Count()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for passing, failing, crashing in re.findall(r"Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", plain):
        count += Count(int(passing), int(failing) + int(crashing), 0)
    return count, re.findall(r"^\[SKIP\]\s*(.*)$", plain, re.M)


def cases(test):
    """What one program of meson's log says of itself: count and reasons of what was skipped."""
    out, err = test.get("stdout") or "", test.get("stderr") or ""
    if re.search(r"^1\.\.\d+", out, re.M):
        count, reasons = tap(out)
    else:
        count, reasons = criterion(out + "\n" + err)
        count.skipped += len(reasons)
    bad = test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")
    if bad and not count.failed:
        count.failed += 1  # it ended badly whatever it had printed
    if not bad and not count.passed + count.failed + count.skipped:
        count = Count(skipped=1) if test["result"] == "SKIP" else Count(passed=1)
        if test["result"] == "SKIP":
            reasons = [(out + err).strip().splitlines()[-1] if (out + err).strip() else "no reason given"]
    return count, reasons


def logged(argv, env):
    """Run silently; what it printed matters only when it fails."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        code = subprocess.run(argv, env=env, stdout=log, stderr=subprocess.STDOUT).returncode
        if code:
            log.seek(0)
            print("".join(log.readlines()[-60:]), flush=True)
    return code == 0


def is_strict(folder):
    """A folder that tools/try or a person has configured stays as it is otherwise."""
    with open(f"{folder}/meson-info/intro-buildoptions.json", encoding="utf8") as file:
        return any(o["name"] == "werror" and o["value"] is True for o in json.load(file))


def make(build, repo, folder, prefix):
    env = {**os.environ, **build.env}
    if not os.path.exists(f"{folder}/build.ninja"):
        if not logged([*prefix, "meson", "setup", *(["--wipe"] if os.path.isdir(f"{folder}/meson-private") else []), STRICT,
                       *build.options, folder, repo], env):
            return False
    elif not is_strict(folder) and not logged(["meson", "configure", folder, STRICT], env):
        return False
    return logged([*prefix, "ninja", "-C", folder], env)


def chosen(build, folder):
    """Arguments that make meson run the suites of this build; None: there is nothing to run."""
    tests = json.loads(subprocess.run(["meson", "introspect", "--tests", folder], check=True, capture_output=True,
                                      text=True).stdout)
    there = {s.split(":")[-1] for t in tests for s in t["suite"]}  # "project:suite"
    if build.suites is None:
        return [] if there else None
    picked = [s for s in build.suites if s in there]
    return [a for s in picked for a in ("--suite", s)] or None


def wrapper(build):
    """ThreadSanitizer cannot place its memory where the kernel randomises addresses too widely."""
    if "thread" not in build.name or not shutil.which("setarch"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/probe"
        made = subprocess.run(["cc", "-fsanitize=thread", "-x", "c", "-", "-o", program], input="int main(void){return 0;}",
                              text=True, capture_output=True).returncode == 0
        fine = made and all(subprocess.run([program], capture_output=True).returncode == 0 for _ in range(5))
        fixed = made and subprocess.run(["setarch", "-R", program], capture_output=True).returncode == 0
    return ["--wrapper", "setarch -R"] if fixed and not fine else []


def run(build, folder, prefix):
    """Run the tests of a build; returns the programs' entries in meson's log."""
    suites = chosen(build, folder)
    if suites is None:
        return []
    log = f"{folder}/meson-logs/testlog.json"
    if os.path.exists(log):
        os.unlink(log)
    patience = IDLE_PATIENCE if prefix else PATIENCE
    subprocess.run([*prefix, "meson", "test", "-C", folder, "--no-rebuild", "--timeout-multiplier", patience, *wrapper(build),
                    *suites], env={**os.environ, **ENVIRONMENT}, stdin=subprocess.DEVNULL)
    if not os.path.exists(log):
        return [{"name": "meson test", "result": "ERROR", "stdout": "meson test left no log"}]
    with open(log, encoding="utf8", errors="replace") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def tail(test, lines=40):
    """The last of what a test printed, and before it what makes the same happen again: its seeds, and what meson fills
    fresh memory with."""
    said = ((test.get("stdout") or "") + "\n" + (test.get("stderr") or "")).strip().splitlines()
    filled = (test.get("env") or {}).get("MALLOC_PERTURB_")
    again = [f"# MALLOC_PERTURB_={filled}"] if filled else []
    again += [line for line in said[:-lines] if re.search(r"\bseed\b|_SEED\b", line)][:lines]
    return "\n".join("   | " + line for line in again + said[-lines:])


def can_fuzz(compiler):
    """Whether there is a compiler with libFuzzer."""
    source = "#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n) { return p && n > 9999; }\n"
    argv = [compiler, "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", "/dev/null"]
    return bool(shutil.which(compiler)) and subprocess.run(argv, input=source, text=True, capture_output=True).returncode == 0


def lacking(build):
    """Why a build is not possible on this machine; None when it is."""
    if build.env.get("CC") and not can_fuzz(build.env["CC"]):
        return f"{build.env['CC']} with its libFuzzer is not installed"
    if build.name == "arm":
        missing = [name for name in ("aarch64-linux-gnu-gcc", "qemu-aarch64") if not shutil.which(name)]
        missing += [] if os.path.exists("/usr/include/criterion/criterion.h") else ["/usr/include/criterion"]
        return f"there is no {', no '.join(missing)}" if missing else None
    return None


def made(build, repo, prefix=()):
    """Make a build; what it took is in the line that says so."""
    begun, folder = time.monotonic(), os.path.join(repo, build.folder)
    say(f"{build.name}: building in {folder}")
    done = make(build, repo, folder, prefix)
    say(f"{build.name}: {'built' if done else 'NOT BUILT'} in {time.monotonic() - begun:.0f} s")
    return done


def tested(build, repo, done, prefix=()):
    """The tests of a build that was made: count, failures and skips as texts."""
    begun, failures, skips = time.monotonic(), [], []
    if not done:
        return Count(failed=1), [f"{build.name}: the build failed"], []
    count = Count(passed=1)
    for test in run(build, os.path.join(repo, build.folder), prefix):
        found, reasons = cases(test)
        count += found
        skips += [f"{build.name}: {test['name']}: {r}" for r in reasons]
        if found.failed:
            failures.append(f"{build.name}: {test['name']} ({test['result']})\n{tail(test)}")
    say(f"{build.name}: {count}, tested in {time.monotonic() - begun:.0f} s")
    return count, failures, skips


def check_all(builds, repo):
    """Results in the order of the builds.  The first is made alone; the timed ones are tested one after the other."""
    reasons = {b.name: lacking(b) for b in builds}
    results = {name: (Count(skipped=1), [], [f"{name}: {reason}"]) for name, reason in reasons.items() if reason}
    possible = [b for b in builds if not reasons[b.name]]
    timed = [b for b in possible if b.timed]
    prefix = IDLY if timed else []
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as beside:
        ready = {b.name: made(b, repo) for b in timed[:1]}
        later = {b.name: beside.submit(made, b, repo, IDLY) for b in timed[1:]}
        others = {b.name: beside.submit(lambda b=b: tested(b, repo, made(b, repo, prefix), prefix)) for b in possible if not b.timed}
        for build in timed:
            done = ready[build.name] if build.name in ready else later[build.name].result()
            results[build.name] = tested(build, repo, done)
        results.update({name: other.result() for name, other in others.items()})
    return [results[b.name] for b in builds]


def main():
    repo, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    unknown = set(wanted) - {b.name for b in BUILDS}
    if unknown:
        sys.exit(f"tools/check: no build is called {', '.join(sorted(unknown))}; there are "
                 f"{', '.join(b.name for b in BUILDS)}")
    begun, total, failures, skips = time.monotonic(), Count(), [], []
    for count, failed, skipped in check_all([b for b in BUILDS if not wanted or b.name in wanted], repo):
        total += count
        failures += failed
        skips += skipped
    for title, texts in (("skipped", skips), ("FAILED", failures)):
        if texts:
            say(title)
            print("\n".join(texts))
    say(f"{time.monotonic() - begun:.0f} s")
    print(total, flush=True)
    sys.exit(0 if total.passed and not total.failed else 1)


if __name__ == "__main__":
    main()
