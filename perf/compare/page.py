# SPDX-License-Identifier: Apache-2.0
"""One self-contained page of what compare found: the targets, and for each series a chart of time and one of bandwidth over
size, both logarithmic, and the figures.  Inline SVG, no script, nothing to load.

Lines differ in dash, marker and weight, not by colour alone; colours are those of Okabe and Ito, which colour-blind people
can tell apart."""
import html
import math

from cases import PEERS, PLACES, label
from judge import figure_text, number

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 44

# name of the line, colour, dash, marker, weight
STYLES = {
    "ring": ("libring", "#0072B2", "", "circle", 2.6),
    "ring:registered": ("libring, registered", "#009E73", "", "square", 2.6),
    "ring:same-bits": ("libring, RING_DETERMINISTIC=1", "#56B4E9", "5 2", "diamond", 1.6),
    "ring:bfloat16": ("libring, bfloat16", "#009E73", "", "square", 2.6),
    "ring:float16": ("libring, float16", "#CC79A7", "", "triangle", 2.6),
    "ring:hier": ("libring, hierarchical", "#009E73", "", "square", 2.6),
    "ring:flat": ("libring, flat ring", "#0072B2", "", "circle", 2.6),
    "openmpi": ("Open MPI", "#D55E00", "7 3", "triangle", 1.6),
    "mpich": ("MPICH", "#CC79A7", "2 3", "diamond", 1.6),
    "gloo": ("Gloo", "#8A6D00", "9 3 2 3", "cross", 1.6),
    "limit": ("limit", "#222222", "", "", 1.1),
}

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Liberation Sans", "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 62rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; border-bottom: 1px solid #bbb; padding-bottom: .2rem; }
h3 { font-size: 1.02rem; margin: 0 0 .5rem; }
p { max-width: 46rem; margin: .4rem 0 .8rem; }
.facts, .note { color: #444; }
.note { font-size: .87rem; }
table { border-collapse: collapse; font-size: .87rem; margin: .4rem 0 1rem; font-variant-numeric: tabular-nums; }
th, td { padding: .18rem .65rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
th { font-weight: 600; border-bottom: 2px solid #888; }
td.text, th.text { text-align: left; }
td.name { white-space: nowrap; }
td.verdict { text-align: left; white-space: nowrap; }
.missed { font-weight: 700; color: #9b2c00; }
.goal { font-weight: 600; color: #00573f; }
section { margin: 1.6rem 0 2.4rem; }
figure { display: flex; flex-wrap: wrap; gap: .5rem 1rem; margin: 0; }
svg { width: 460px; max-width: 100%; height: auto; }
svg text { font: 11.5px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif; fill: #1a1a1a; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: 0 0 .3rem; padding: 0; list-style: none; font-size: .87rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend svg { width: 44px; height: 14px; flex: none; }
.scroll { overflow-x: auto; }
nav ul { columns: 3 15rem; padding-left: 1.1rem; font-size: .9rem; }
a { color: #00507d; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  section { break-inside: avoid; }
  h2 { break-after: avoid; }
  nav { display: none; }
  a { color: inherit; text-decoration: none; }
  .scroll { overflow: visible; }
}
"""


def marker(kind, x, y, colour):
    r = 3.6
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{colour}"/>'
    if kind == "square":
        return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r}" height="{2 * r}" fill="{colour}"/>'
    if kind == "triangle":
        points = f"{x:.1f},{y - 4.4:.1f} {x - 4.2:.1f},{y + 3.2:.1f} {x + 4.2:.1f},{y + 3.2:.1f}"
        return f'<polygon points="{points}" fill="#fff" stroke="{colour}" stroke-width="1.5"/>'
    if kind == "diamond":
        points = f"{x:.1f},{y - 4.8:.1f} {x + 4.8:.1f},{y:.1f} {x:.1f},{y + 4.8:.1f} {x - 4.8:.1f},{y:.1f}"
        return f'<polygon points="{points}" fill="#fff" stroke="{colour}" stroke-width="1.5"/>'
    if kind == "cross":
        return (f'<path d="M{x - 3.4:.1f} {y - 3.4:.1f}L{x + 3.4:.1f} {y + 3.4:.1f}M{x - 3.4:.1f} {y + 3.4:.1f}'
                f'L{x + 3.4:.1f} {y - 3.4:.1f}" stroke="{colour}" stroke-width="1.8"/>')
    return ""


def stroke(style):
    _, colour, dash, _, weight = style
    return f'fill="none" stroke="{colour}" stroke-width="{weight}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def time_text(us):
    for least, unit in ((1e6, "s"), (1e3, "ms"), (1, "µs")):
        if us >= least * 0.9999:
            return f"{us / least:g} {unit}"
    return f"{us * 1e3:g} ns"


def speed_text(bytes_per_s):
    for least, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= least * 0.9999:
            return f"{bytes_per_s / least:g} {unit}"
    return f"{bytes_per_s:g} B/s"


class Axis:
    """A logarithmic scale from a value to a place."""

    def __init__(self, values, begin, end, whole_decades):
        low, high = math.log10(min(values)), math.log10(max(values))
        if whole_decades:
            low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
        if high - low < 0.5:
            low, high = low - 0.5, high + 0.5
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def place(self, value):
        return self.begin + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.begin)

    def decades(self):
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        step = max(1, -(-(last - first) // 8))
        return [10.0 ** e for e in range(first, last + 1, step)]


def chart(lines, title, text_of):
    """lines: name -> [(size, value)]; an SVG."""
    sizes = sorted({s for points in lines.values() for s, _ in points})
    values = [v for points in lines.values() for _, v in points]
    across = Axis(sizes, LEFT + 8, WIDTH - RIGHT - 8, False)
    up = Axis(values, HEIGHT - BOTTOM, TOP + 16, True)
    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">',
           f'<text x="{LEFT}" y="{TOP + 1}" font-weight="600">{html.escape(title.split(",")[0])}</text>']
    for value in up.decades():
        y = up.place(value)
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text_of(value)}</text>']
    last = WIDTH + 100
    for size in reversed(sizes):  # so that the largest has its label
        x = across.place(size)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}" stroke="#555"/>')
        if last - x >= 44:
            out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label(size)}</text>')
            last = x
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" stroke="#555"/>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">size</text>')
    for name in reversed(list(lines)):  # ours on top
        style, points = STYLES[name], [(across.place(s), up.place(v)) for s, v in lines[name]]
        out.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" {stroke(style)}/>')
        for (x, y), (size, value) in zip(points, lines[name]):
            shape = marker(style[3], x, y, style[1])
            tip = html.escape(f"{style[0]}, {label(size)}: {text_of(float(f'{value:.3g}'))}")
            out.append(f"<g><title>{tip}</title>{shape}</g>" if shape else "")
    return "".join([*out, "</svg>"])


def legend(names):
    items = []
    for name in names:
        style = STYLES[name]
        items.append(f'<li><svg viewBox="0 0 44 14" aria-hidden="true"><line x1="2" x2="42" y1="7" y2="7" {stroke(style)}/>'
                     f'{marker(style[3], 22, 7, style[1])}</svg>{html.escape(style[0])}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def lines_of(series):
    """name -> [(size, microseconds)]: ours by variant, each peer by its fastest variant at each size, the limit."""
    found = {}
    for name, figures in series["figures"].items():
        key = name if name in STYLES else name.split(":")[0]
        for size, stats in figures.items():
            best = found.setdefault(key, {})
            best[int(size)] = min(best.get(int(size), math.inf), stats["steady"])
    limit = {int(s): v for s, v in series["limit"].items() if v}
    if limit:
        found["limit"] = limit
    return {name: sorted(found[name].items()) for name in STYLES if found.get(name)}


def series_table(series, lines):
    rows = [[label(size), *(number(dict(points).get(size)) for points in lines.values())] for size in series["sizes"]]
    for row, size in zip(rows, series["sizes"]):
        ours = [dict(p)[size] for n, p in lines.items() if n.split(":")[0] == "ring" and size in dict(p)]
        peers = [dict(p)[size] for n, p in lines.items() if n in PEERS and size in dict(p)]
        row.append(f"{min(peers) / min(ours):.2f}" if ours and peers else "-")
    head = ["size", *(STYLES[n][0] for n in lines), "× best peer"]
    return table(head, rows)


def table(head, rows, text=()):
    cell = lambda i, tag, value: f'<{tag}{" class=" + chr(34) + "text" + chr(34) if i in text else ""}>{html.escape(value)}</{tag}>'
    body = "".join("<tr>" + "".join(cell(i, "td", v) for i, v in enumerate(row)) + "</tr>" for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{"".join(cell(i, "th", v) for i, v in enumerate(head))}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def title_of(series):
    return f"{series['coll']}, {series['ranks']} ranks" + (", cold buffers" if series["cold"] else "") + \
        (", by type" if series["name"].endswith("-types") else "")


def section(series):
    lines = lines_of(series)
    out = [f'<section id="{html.escape(series["name"])}"><h3>{html.escape(title_of(series))}</h3>']
    if lines and len(series["sizes"]) > 1:
        speed = {name: [(s, s / v * 1e6) for s, v in points] for name, points in lines.items()}
        out += [legend(lines), "<figure>", chart(lines, f"time, {series['name']}", time_text),
                chart(speed, f"size / time, {series['name']}", speed_text), "</figure>"]
    out.append(series_table(series, lines) if lines else "<p>No figures.</p>")
    ends = [f"{name}: {end}" for name, end in series["bad"].items()]
    if ends:
        out.append(f'<p class="note">{html.escape("; ".join(ends))}.</p>')
    return "".join([*out, "</section>"])


def targets_table(rows):
    out = ['<div class="scroll"><table><thead><tr><th class="text">target</th><th>figure</th><th>floor</th><th>goal</th>'
           '<th class="text">verdict</th></tr></thead><tbody>']
    words = {"goal": ("goal", "✓✓ goal reached"), "floor": ("", "✓ floor reached"), "MISSED": ("missed", "✗ missed"),
             "no figure": ("", "no figure")}
    for row in rows:
        what = row["what"] + (f"; the worst: {row['cell']}" if row["cell"] else "")
        kind, text = words[row["verdict"]]
        out.append(f'<tr><td class="text">{html.escape(what)}</td>' +
                   "".join(f"<td class=\"name\">{figure_text(row, row[k])}</td>" for k in ("value", "floor", "goal")) +
                   f'<td class="verdict {kind}">{text}</td></tr>')
    return "".join([*out, "</tbody></table></div>"])


def make(data):
    facts = data["machine"]
    places = [p for p in PLACES if any(s["place"] == p for s in data["series"])]
    out = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
           f'initial-scale=1"><title>libring, compared</title><style>{STYLE}</style></head><body>',
           "<h1>libring, compared</h1>",
           f'<p class="facts">{html.escape(str(facts["processors"]))} processors ({html.escape(facts["processor"])}), kernel '
           f'{html.escape(facts["kernel"])}; medians of {facts["rounds"]} round'
           f'{"" if facts["rounds"] == 1 else "s"} in which all libraries took turns, three times as many where a floor is missed.</p>',
           "<p>Float, sum, out of place. Times are microseconds for one operation; the largest of the ranks counts, and of "
           "each peer the setting that is its fastest at that size. “Registered” is memory that the ranks of a host can map. "
           "The limit is what a program without any library does on this machine, or the wire.</p>"]
    if data["targets"]:
        out += ["<h2>Targets</h2>", targets_table(data["targets"])]
    links = "".join(f'<li><a href="#{html.escape(s["name"])}">{html.escape(s["name"])}</a></li>' for s in data["series"])
    out.append(f"<nav><h2>Series</h2><ul>{links}</ul></nav>")
    for place in places:
        text = PLACES[place]
        out.append(f"<h2>{html.escape(text[0].upper() + text[1:])}</h2>")
        out += [section(s) for s in data["series"] if s["place"] == place]
    if data["sweep"]:
        out += ["<h2>Settings tried</h2>", '<p class="note">And at how many sizes each was its library’s fastest.</p>',
                table(["variant", "fastest at"], [[s["variant"], str(s["best"])] for s in data["sweep"]], text=(0,))]
    return "\n".join([*out, "</body></html>\n"])
