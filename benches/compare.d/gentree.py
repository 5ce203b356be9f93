#!/usr/bin/env python3
"""Deterministic tree generator: the same arguments make a byte-identical tree.

gentree.py OUT --files N --mb TOTAL [--profile repo|small|big] ...
  repo   log-normal text files (median 4 KiB, 1 to 64 KiB), and binaries of 1 to 30 MiB up to TOTAL
  small  text files only, sizes scaled so that they add up to TOTAL
  big    binaries of equal size that add up to TOTAL
Text is lines of words from a seeded vocabulary, which compresses like source code; binaries are half
random, half repeated blocks. Times are fixed, so that stat caches behave alike.

gentree.py TREE --mutate content|touch --frac 0.01 --seed K
  content  overwrites a few bytes of the chosen files in place and appends a line (frac 0: of one file)
  touch    sets the time of the chosen files to now
"""
import argparse
import math
import os
import random

EXT = [".rs", ".py", ".ts", ".js", ".c", ".h", ".go", ".md", ".json", ".toml", ".txt", ".yml", ".html", ".css"]
BINARY_EXT = [".bin", ".png", ".so", ".wasm", ".sqlite", ".tar", ".pdf"]
SYLLABLES = ("ba co di fe gu ha in jo ka lo me nu or pa qui re st tu un ve wo xi ye zo th er on al ing ed ion").split()
KEYWORDS = ["let", "fn", "return", "if", "else", "for", "=", "==", "{", "}", "(", ")", ";", "self", "import"]
DIR_NAMES = ["src", "lib", "tests", "docs", "pkg", "core", "util", "mod", "node_modules", "crates"]
FILE_NAMES = ["main", "index", "util", "config", "test", "data", "readme"]
EPOCH = 1_700_000_000


class Text:
    """Cheap deterministic text: a file is a row of slices of one pool of lines."""

    def __init__(self, seed):
        r = random.Random(seed)
        words = ["".join(r.choice(SYLLABLES) for _ in range(r.randint(1, 4))) for _ in range(6000)]
        words += KEYWORDS * 60
        self.lines = []
        for _ in range(40000):
            indent = " " * (4 * r.randint(0, 4))
            line = indent + " ".join(r.choice(words) for _ in range(r.randint(2, 11))) + "\n"
            self.lines.append(line.encode())

    def make(self, r, size):
        out = [b"// file %016x\n" % r.getrandbits(64)]
        length = len(out[0])
        while length < size:
            start = r.randrange(len(self.lines) - 12)
            run = self.lines[start : start + r.randint(3, 9)]
            run.append(b"    let v_%08x = %d;\n" % (r.getrandbits(32), r.getrandbits(20)))
            out += run
            length += sum(map(len, run))
        return b"".join(out)[:size]


def binary(r, size):
    """Yields the content of a binary file in blocks."""
    done = 0
    while done < size:
        block = min(size - done, 65536)
        yield r.randbytes(block) if r.random() < 0.6 else (r.randbytes(64) * 1024)[:block]
        done += block


def make_dirs(r, a):
    dirs = [""]
    while len(dirs) < max(1, a.files // a.per_dir):
        if r.random() < 0.5:
            parent = dirs[r.randrange(len(dirs))]
        else:
            parent = dirs[max(0, len(dirs) - 1 - r.randrange(min(len(dirs), 8)))]
        if parent.count("/") >= a.depth - 1:
            parent = ""
        name = f"{r.choice(DIR_NAMES)}{len(dirs) - 1}"
        dirs.append(f"{parent}/{name}" if parent else name)
    for d in dirs:
        os.makedirs(os.path.join(a.out, d), exist_ok=True)
    return dirs


def text_size(r, smallest, largest):
    return min(largest, max(smallest, r.lognormvariate(math.log(4200), 1.1)))


def make_sizes(r, a):
    """The size of each file, and which of them are binaries."""
    total = int(a.mb * 1e6)
    if a.profile == "big":
        return [total // a.files] * a.files, set(range(a.files))
    if a.profile == "small":
        sizes = [text_size(r, 60, 256 * 1024) for _ in range(a.files)]
        scale = total / sum(sizes)
        return [max(60, int(s * scale)) for s in sizes], set()
    sizes = [int(text_size(r, 60, 64 * 1024)) for _ in range(a.files)]
    rest, binaries = total - sum(sizes), []
    while rest > 0:
        size = int(math.exp(r.uniform(math.log(1 << 20), math.log(30 << 20))))
        size = min(size, max(rest, 1 << 18))
        binaries.append(size)
        rest -= size
    chosen = r.sample(range(a.files), len(binaries))
    for i, size in zip(chosen, binaries):
        sizes[i] = size
    return sizes, set(chosen)


class Writer:
    def __init__(self, r, a):
        self.r, self.a = r, a
        self.text, self.earlier = Text(a.seed + 77), []

    def content(self, size, is_binary):
        if is_binary:
            return binary(self.r, size)
        if self.earlier and self.r.random() < self.a.dup:
            return [self.earlier[self.r.randrange(len(self.earlier))]]
        data = self.text.make(self.r, size)
        if len(self.earlier) < 2000:
            self.earlier.append(data)
        return [data]

    def write(self, path, size, is_binary):
        with open(path, "wb") as f:
            for block in self.content(size, is_binary):
                f.write(block)
        os.chmod(path, 0o755 if self.r.random() < self.a.exec else 0o644)
        second = EPOCH + self.r.randrange(10_000_000)
        os.utime(path, ns=(second * 10**9, second * 10**9 + self.r.randrange(10**9)))


def generate(a):
    r = random.Random(a.seed)
    os.makedirs(a.out, exist_ok=True)
    dirs = make_dirs(r, a)
    sizes, binaries = make_sizes(r, a)
    writer, paths = Writer(r, a), []
    for n, size in enumerate(sizes):
        d = dirs[r.randrange(len(dirs))]
        ext = r.choice(BINARY_EXT if n in binaries else EXT)
        rel = os.path.join(d, f"f{n:06d}_{r.choice(FILE_NAMES)}{ext}")
        path = os.path.join(a.out, rel)
        if paths and r.random() < a.symlinks:
            target = os.path.join(a.out, r.choice(paths))
            os.symlink(os.path.relpath(target, os.path.dirname(path)), path)
            continue
        writer.write(path, size, n in binaries)
        paths.append(rel)
    for d in sorted(dirs, reverse=True):
        os.utime(os.path.join(a.out, d), (EPOCH, EPOCH))


def regular_files(root):
    out = []
    for top, dirs, names in os.walk(root):
        dirs.sort()
        if top == root:
            dirs[:] = [d for d in dirs if d not in (".git", ".jj")]
        out += [p for p in (os.path.join(top, f) for f in sorted(names)) if not os.path.islink(p)]
    return out


def mutate(a):
    r = random.Random(a.seed)
    files = regular_files(a.out)
    for path in r.sample(files, max(1, int(len(files) * a.frac))):
        if a.mutate == "touch":
            os.utime(path, None)
            continue
        with open(path, "r+b") as f:
            f.seek(r.randrange(max(1, os.path.getsize(path))))
            f.write(b"<<%016x>>" % r.getrandbits(64))
            f.seek(0, 2)
            f.write(b"// appended %08x\n" % r.getrandbits(32))


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--mb", type=float, default=60)
    parser.add_argument("--profile", choices=["repo", "small", "big"], default="repo")
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--per-dir", type=int, default=9)
    parser.add_argument("--dup", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--symlinks", type=float, default=0.002)
    parser.add_argument("--exec", type=float, default=0.02)
    parser.add_argument("--mutate", choices=["touch", "content"])
    parser.add_argument("--frac", type=float, default=0.01)
    a = parser.parse_args()
    (mutate if a.mutate else generate)(a)


main()
