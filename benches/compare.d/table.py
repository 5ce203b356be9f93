#!/usr/bin/env python3
"""table.py RAW TREE CANDIDATE: prints medians, ratios candidate / peer, floors and bars.

RAW holds a file <tree>.<tool>.<step> for each tool and step, with a line a run:
"wall user sys peak-MiB cores-busy-elsewhere"; for sizes (step 0.…) a line is a number of bytes;
for floors (tool `floor`) seconds.
"""
import os
import statistics
import sys

STEPS = {
    "1.first": "first capture",
    "2.unchanged": "unchanged capture",
    "3.touch1pct": "1 % touched",
    "4.change1pct": "1 % changed",
    "5.change1file": "one file changed",
    "6.restore_empty": "restore into empty",
    "7.restore_inplace": "in place, 1 %",
    "8.list": "list",
    "9.prune": "prune to 5",
}
SIZES = {"0.size_first": "store, first capture", "0.size_all": "store, all captures"}
FLOORS = {
    "walk": ("2.unchanged", "walk and lstat, two threads"),
    "capture": ("1.first", "walk, read, hash, write uncompressed objects, two threads, not synced"),
    "restore": ("6.restore_empty", "read objects, check hashes, write files, two threads, not synced"),
}
# step, peers (the best of those present), factor, relation in words
BARS = [
    ("1.first", ("git", "gitfast", "restic", "jj", "ostree"), 0.6, "0.6 x the fastest that keeps objects"),
    ("2.unchanged", ("git", "gitfast"), 1.0, "shadow git"),
    ("4.change1pct", ("git", "gitfast", "jj"), 1.0, "the best of shadow git and jj"),
    ("6.restore_empty", ("git", "gitfast", "restic", "ostree"), 1.0, "the best of restic, shadow git and ostree"),
    ("7.restore_inplace", ("git", "gitfast", "jj"), 1.0, "the best of shadow git and jj"),
    ("9.prune", ("git",), 0.1, "a tenth of git's"),
]
NOISY = 0.4


def load(raw, tree):
    """step -> tool -> the lines of numbers."""
    data = {}
    for name in sorted(os.listdir(raw)):
        if not name.startswith(tree + ".") or name.count(".") < 2:
            continue
        tool, step = name[len(tree) + 1 :].split(".", 1)
        with open(os.path.join(raw, name)) as lines:
            data.setdefault(step, {})[tool] = [list(map(float, line.split())) for line in lines]
    return data


def median(rows, column=0):
    return statistics.median(row[column] for row in rows)


def ratio(rows, peer_rows):
    """Pair by pair, of the same round; then the median."""
    return statistics.median(a[0] / max(b[0], 1e-4) for a, b in zip(rows, peer_rows))


def peak(data, tool):
    return max((row[3] for step in STEPS for row in data.get(step, {}).get(tool, [])), default=0)


def table(data, candidate, peers):
    head = f"{'':22}{candidate + ' s':>12}{'cpu s':>8}{'peak MiB':>10}"
    print(head + "".join(f"{p + ' s':>12}{'ratio':>7}" for p in peers))
    for step, title in STEPS.items():
        rows = data.get(step, {}).get(candidate)
        if not rows:
            continue
        cpu = statistics.median(row[1] + row[2] for row in rows)
        line = f"{title:22}{median(rows):12.3f}{cpu:8.3f}{max(row[3] for row in rows):10.0f}"
        for peer in peers:
            other = data[step].get(peer)
            line += f"{median(other):12.3f}{ratio(rows, other):7.2f}" if other else f"{'-':>12}{'':7}"
        busy = median(rows, 4)
        print(line + (f"   noisy: {busy:.1f} cores busy elsewhere" if busy > NOISY else ""))
    amounts("peak memory, MiB", {t: peak(data, t) for t in [candidate, *peers]}, candidate, peers)
    for step, title in SIZES.items():
        sizes = {t: rows[-1][0] / 1e6 for t, rows in data.get(step, {}).items()}
        amounts(title + ", MB", sizes, candidate, peers)


def amounts(title, values, candidate, peers):
    line = f"{title:30}{values.get(candidate, 0):22.1f}"
    for peer in peers:
        other = values.get(peer)
        line += f"{other:12.1f}{values[candidate] / other:7.2f}" if other else f"{'-':>12}{'':7}"
    print(line)


def floors(data, tools):
    for name, (step, what) in FLOORS.items():
        rows = data.get(name, {}).get("floor")
        if not rows:
            continue
        floor = median(rows)
        times = [f"{t} {median(data[step][t]) / floor:.2f} x" for t in tools if t in data.get(step, {})]
        print(f"floor of {STEPS[step]}: {floor:.4f} s ({what}): {', '.join(times)}")


def bars(data, candidate):
    for step, peers, factor, words in BARS:
        by_tool = data.get(step, {})
        best = min((median(by_tool[p]) for p in peers if p in by_tool), default=None)
        if best is None or candidate not in by_tool:
            continue
        got = median(by_tool[candidate])
        verdict = "met" if got <= factor * best else "MISSED"
        print(f"bar {STEPS[step]}: {words}: {got:.3f} s of {factor * best:.3f} s, {got / best:.2f} x the best: {verdict}")


def main():
    raw, tree, candidate = sys.argv[1:]
    data = load(raw, tree)
    peers = sorted({t for step in data.values() for t in step} - {candidate, "floor"})
    table(data, candidate, peers)
    floors(data, [candidate, *peers])
    bars(data, candidate)


main()
