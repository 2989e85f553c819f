# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/results.md from `berm bench fragmentation --json`, as Markdown:

    berm bench fragmentation --json TRACE... | python3 stress/curves/tables.py [TABLE...]

Tables: summary, shares, common, reserved, times; all by default.
"""
import json
import sys

LATENCY = "typical"  # of the tables that have only one


def cell(value, digits):
    return "none" if value is None else f"{value:,.{digits}f}"


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


class Points:
    def __init__(self, result):
        self.points = result["points"]
        self.summary = result["summary"]
        self.traces = [trace["name"] for trace in result["traces"]]
        self.latencies = list(dict.fromkeys(p["latency"] for p in self.points))
        self.latency = LATENCY if LATENCY in self.latencies else self.latencies[0]
        self.modes = list(dict.fromkeys(p["conf"] for p in self.points if p["allocator"] == "berm"))
        self.caps = sorted({p["headroom_pct"] for p in self.points if p["kind"] == "capped"})
        self.others = list(
            dict.fromkeys(p["allocator"] for p in self.points if p["allocator"] != "berm"))

    def all(self, **wanted):
        return [p for p in self.points if all(p[k] == v for k, v in wanted.items())]

    def one(self, **wanted):
        found = self.all(**wanted)
        return found[0] if found else None

    def first_mode(self):
        return self.modes[0] if self.modes else ""


def time_us(point):
    return None if point is None or not point["completed"] else point["driver_us"] + point["wait_us"]


def shares(points):
    """Moved over allocated bytes at each cap: naive, berm, and the one over the other."""
    print(f"Moved over allocated bytes at hard caps of peak live x (1 + e), `{points.latency}`: "
          f"naive / berm `{points.first_mode()}` / the second over the first.\n")
    caps = [cap for cap in points.caps if cap <= 10]
    rows = []
    for trace in points.traces:
        row = [trace]
        for cap in caps:
            like = dict(trace=trace, latency=points.latency, kind="capped", headroom_pct=cap)
            naive = points.one(allocator="naive", **like)
            berm = points.one(allocator="berm", conf=points.first_mode(), **like)
            row.append(" / ".join([cell(naive and naive["moved_share"], 3),
                                   cell(berm and berm["moved_share"], 3),
                                   cell(berm and berm["ratio"], 2)]))
        rows.append(row)
    table(["trace"] + [f"e = {cap:g} %" for cap in caps], rows)


def common(points):
    """Driver time and waits on the smallest common device."""
    print("Modelled driver time and waits, ms, on the smallest device on which both finish: berm / "
          "expandable, their ratio, and the factor on driver costs at which they would be equal "
          "(*never*: berm takes more of both; *always*: less of both).\n")
    rows = []
    for trace in points.traces:
        for mode in points.modes:
            row = [trace, f"`{mode}`"]
            for latency in points.latencies:
                # A pair stands together, berm first.
                index = next((i for i, p in enumerate(points.points) if
                              (p["trace"], p["kind"], p["latency"], p["allocator"], p["conf"]) ==
                              (trace, "common", latency, "berm", mode)), None)
                if index is None:
                    return
                berm, other = points.points[index:index + 2]
                if len(row) == 2:
                    capacity = berm["capacity_bytes"]
                    row.append("none" if capacity is None else
                               f"{capacity / berm['peak_live_bytes']:.4f}")
                    row.append("none" if not other["completed"] else
                               f"{other['driver_calls']['unmap']:,}")
                if not (berm["completed"] and other["completed"]):
                    row.append("none")
                    continue
                even = berm["break_even"]
                even = even if isinstance(even, str) else "none" if even is None else f"{even:.2g}"
                row.append(f"{time_us(berm) / 1e3:,.0f} / {time_us(other) / 1e3:,.0f} = "
                           f"{berm['ratio']:.2f}; {even}")
            rows.append(row)
    table(["trace", "berm", "capacity / live", "unmaps of expandable"] + points.latencies, rows)


def reserved(points):
    """Reserved over live against moved bytes, without a cap."""
    print(f"Peak reserved over peak live (moved over allocated bytes), no cap, `{points.latency}`, "
          "at headroom e.\n")
    rows = []
    for trace in points.traces:
        like = dict(trace=trace, latency=points.latency, kind="uncapped")
        for name, conf in [("berm", mode) for mode in points.modes] + [(n, "") for n in points.others]:
            found = points.all(allocator=name, conf=conf, **like)
            if not found:
                continue
            cells = []
            for p in found:
                cells.append("none" if not p["completed"] else
                             f"{p['reserved_over_live']:.3f} ({p['moved_share']:.3f})")
            cells += [""] * (len(points.caps) - len(cells))
            rows.append([trace, f"{name} `{conf}`" if conf else name] + cells)
    table(["trace", "allocator"] + [f"e = {cap:g} %" for cap in points.caps], rows)


def times(points):
    """What a cap costs each allocator."""
    print(f"Modelled driver time and waits, ms (host waits), at hard caps of peak live x (1 + e), "
          f"`{points.latency}`.\n")
    rows = []
    for trace in points.traces:
        like = dict(trace=trace, latency=points.latency, kind="capped")
        for name, conf in [("berm", mode) for mode in points.modes] + [(n, "") for n in points.others]:
            found = points.all(allocator=name, conf=conf, **like)
            if not found:
                continue
            cells = ["none" if not p["completed"] else
                     f"{time_us(p) / 1e3:,.0f} ({p['host_waits']:,})" for p in found]
            rows.append([trace, f"{name} `{conf}`" if conf else name] + cells)
    table(["trace", "allocator"] + [f"e = {cap:g} %" for cap in points.caps], rows)


def summary(points):
    """What it comes to, by mode and latency."""
    rows = []
    for s in points.summary:
        share, time = s["moved_share_over_naive"], s["time_over_expandable"]
        where = ("" if share["largest"] is None else
                 f" ({share['largest_trace']}, {share['largest_headroom_pct']:g} %)")
        rows.append([
            f"`{s['conf']}`", s["latency"], cell(share["geometric_mean"], 3),
            cell(share["largest"], 3) + where,
            f"{share['count']}; {share['not_finished']}; {share['only_berm_above']}",
            cell(time["geometric_mean"], 3),
            cell(time["largest"], 3) + (f" ({time['largest_trace']})" if time["count"] else ""),
            f"{time['above_a_third']} of {time['count']}",
        ])
    table(["berm", "latency", "moved share / naive's, mean", "largest",
           "counted; not finished; only berm's >= 0.02", "time / expandable's, mean", "largest",
           "above 1/3"], rows)


TABLES = {"summary": summary, "shares": shares, "common": common, "reserved": reserved,
          "times": times}


def main():
    wanted = sys.argv[1:] or list(TABLES)
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        sys.exit(f"tables.py: no table '{unknown[0]}'; there are {', '.join(TABLES)}")
    result = json.load(sys.stdin)
    points = Points(result)
    print(f"```\n{result['command']}\n```\n")
    for name in wanted:
        TABLES[name](points)


main()
