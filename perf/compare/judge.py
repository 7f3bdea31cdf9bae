# SPDX-License-Identifier: Apache-2.0
"""From measurements to figures: medians over the rounds, the best variant of each peer, ratios, and whether a target's
floor and goal are reached; and the tables of the terminal."""
import statistics

from cases import LESS, PEERS, label

DISTURBED = 1.1  # a limit that we beat by more was measured on a busy machine

RULE = """\
times   microseconds for one operation: each rank takes the median over 15 parts of its loop of the mean in each, the largest
        of the ranks counts; the figure is the median over the rounds, in which all contenders take turns
x best  how many times faster our fastest column is than the fastest peer, each peer by its fastest variant at this size
limit   what this machine allows by perf/limits, or the wire; measured in the same rounds.  "?": we are more than 10 % faster
        than it says, so that it was measured on a busy machine and says nothing
-       there is no such figure: the peer does not have the collective, is not installed, or nothing bounds it
verdict goal or floor reached, MISSED when neither is; "no figure" when ours or all others are missing"""


class Figures:
    """What was found in one series."""

    def __init__(self, series):
        self.series = series
        self.runs = {}  # contender -> [{size: statistics}], a member for each round that gave one
        self.bad = {}   # contender -> "hung", "failed" or "not there: why"
        self.known = {}  # size -> limit that needs no measurement

    def value(self, name, size, figure="steady"):
        found = [r[size][figure] for r in self.runs.get(name, []) if r.get(size) and r[size].get(figure) is not None]
        return statistics.median(found) if found else None

    def limit(self, size):
        return self.known.get(size) or self.value("limit", size)

    def best(self, peer, size, figure="steady"):
        """(microseconds, variant) of the peer's fastest variant; (None, None)."""
        found = [(self.value(n, size), n) for n in self.runs if n.split(":")[0] == peer and self.value(n, size) is not None]
        if not found:
            return None, None
        least, name = min(found)
        return (least, name) if figure == "steady" else (self.value(name, size, figure), name)

    def best_peer(self, size):
        found = [self.best(p, size)[0] for p in PEERS if self.best(p, size)[0] is not None]
        return min(found) if found else None

    def end_of(self, peer):
        """Why a peer has no figure."""
        ends = [end for name, end in self.bad.items() if name.split(":")[0] == peer]
        return "hung" if "hung" in ends else "failed" if "failed" in ends else "-"


def ratio(a, b):
    return a / b if a is not None and b else None


def cell_value(target, found, size):
    ours = found.value(target.ours, size)
    if target.kind in ("ratio", "worst"):
        return ratio(found.best_peer(size), ours)
    if target.kind == "time":
        return ratio(ours, found.limit(size))
    if target.kind == "share":
        share = ratio(found.limit(size), ours)
        return 100 * share if share is not None and share <= DISTURBED else None
    if target.kind == "self":
        return ratio(ours, found.value("ring", size))
    if target.kind == "flat":
        return ratio(found.value("ring:flat", size), ours)
    peers = [found.best(p, size, "processor")[0] for p in ("openmpi", "gloo")]
    peers = [p for p in peers if p is not None]
    return ratio(min(peers), found.value(target.ours, size, "processor")) if peers else None


def reaches(target, value, bar):
    return value <= bar if target.kind in LESS else value >= bar


def is_missed(target, found):
    """Whether one of the target's cells in this series is on the wrong side of its floor."""
    values = [cell_value(target, found, c.size) for c in target.cells if c.series == found.series.name]
    return any(value is not None and not reaches(target, value, target.floor) for value in values)


def evaluate(target, results):
    """The target's row: value (the worst of its cells), where that is, and the verdict."""
    cells = [(cell_value(target, results[c.series], c.size), c) for c in target.cells]
    known = [(v, c) for v, c in cells if v is not None]
    row = {"name": target.name, "what": target.what, "floor": target.floor, "goal": target.goal, "kind": target.kind,
           "value": None, "cell": None, "verdict": "no figure"}
    if not known:
        return row
    less = target.kind in LESS
    row["value"], where = (max if less else min)(known, key=lambda k: k[0])
    row["cell"] = f"{where.series} {label(where.size)}" if len(target.cells) > 1 else None
    row["verdict"] = next((bar for bar in ("goal", "floor") if reaches(target, row["value"], getattr(target, bar))), "MISSED")
    if len(known) < len(cells) and row["verdict"] != "MISSED":
        row["cell"] = f"{row['cell']}; {len(cells) - len(known)} of {len(cells)} cells without figures"
    return row


# ---- tables ----

def number(value):
    return "-" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def limit_of(found, size):
    """The limit and our better share of it, as texts."""
    limit = found.limit(size)
    ours = [v for v in (found.value(n, size) for n in found.runs if n.split(":")[0] == "ring") if v]
    if not limit or not ours:
        return number(limit), "-"
    share = limit / min(ours)
    return (number(limit) + "?", "?") if share > DISTURBED else (number(limit), f"{100 * share:.0f} %")


def series_rows(found):
    """Rows of texts: size, ours by variant, peers, limit, ratio; the head first."""
    ours = [n for n in found.runs if n.split(":")[0] == "ring"] or ["ring"]
    peers = [p for p in PEERS if any(n.split(":")[0] == p for n in [*found.runs, *found.bad])]
    rows = [["size", *ours, *peers, "limit", "of limit", "x best"]]
    for size in found.series.sizes:
        times = [number(found.value(n, size)) for n in ours]
        others = [number(found.best(p, size)[0]) if found.best(p, size)[0] is not None else found.end_of(p) for p in peers]
        best = [v for v in (found.value(n, size) for n in ours) if v]
        rows.append([label(size), *times, *others, *limit_of(found, size),
                     number(ratio(found.best_peer(size), min(best) if best else None))])
    return rows


def print_rows(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(text.rjust(width) for text, width in zip(row, widths)))


def print_series(found):
    print(f"# {found.series.name}")
    print_rows(series_rows(found))
    for name, end in found.bad.items():
        print(f"# {name} {end}" + ("" if end.startswith("not there") else " at least once; rounds that gave a figure count"))
    print(flush=True)


def figure_text(row, value):
    return number(value) + {"share": " %", "time": " x of it", "self": " x of it"}.get(row["kind"], " x") \
        if value is not None else "-"


def print_targets(rows):
    table = [["target", "figure", "floor", "goal", "verdict", "what"]]
    for row in rows:
        what = row["what"] + (f" (the worst: {row['cell']})" if row["cell"] else "")
        table.append([row["name"], *(figure_text(row, row[k]) for k in ("value", "floor", "goal")), row["verdict"], what])
    widths = [max(len(row[i]) for row in table) for i in range(5)]
    for row in table:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)) + "  " + row[5])
    print("\n".join(f"# {line}" for line in RULE.splitlines()))


def sweep_rows(results):
    """What was tried of each peer, and where which variant was the fastest: (peer, variant, series count as best)."""
    tried = {}
    for found in results.values():
        for name in found.runs:
            if name.split(":")[0] in PEERS:
                tried.setdefault(name, 0)
        for size in found.series.sizes:
            for peer in PEERS:
                name = found.best(peer, size)[1]
                if name:
                    tried[name] += 1
    return sorted(tried.items())
