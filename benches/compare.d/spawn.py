#!/usr/bin/env python3
"""spawn.py FILE CMD ARG...: runs CMD once and appends to FILE a line
    wall user sys peak-MiB cores-busy-elsewhere
of the whole process tree. Syncs first and waits, for a bounded time, until the machine is quiet.
"""
import os
import subprocess
import sys
import time


def busy():
    """Seconds of CPU used by everything since boot."""
    with open("/proc/stat") as stat:
        fields = list(map(int, stat.readline().split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(limit):
    end = time.time() + limit
    while time.time() < end:
        before = busy()
        time.sleep(0.2)
        if (busy() - before) / 0.2 < 0.25:
            return


def run(cmd, log):
    pid = os.fork()
    if pid == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execvp(cmd[0], cmd)
    _, status, usage = os.wait4(pid, 0)
    return status, usage


def main():
    log = os.environ.get("ERRLOG", os.devnull)
    subprocess.run(["sync", "-f", os.environ.get("SYNCPATH", ".")], check=True)
    wait_until_quiet(float(os.environ.get("QUIET_WAIT", "10")))
    before, start = busy(), time.perf_counter()
    status, usage = run(sys.argv[2:], log)
    wall = time.perf_counter() - start
    cpu = usage.ru_utime + usage.ru_stime
    elsewhere = max(0, busy() - before - cpu) / max(wall, 0.02)
    if status:
        with open(log) as text:
            sys.stderr.write(text.read()[-800:])
        sys.exit(1)
    with open(sys.argv[1], "a") as out:
        out.write(
            f"{wall:.4f} {usage.ru_utime:.4f} {usage.ru_stime:.4f}"
            f" {usage.ru_maxrss / 1024:.1f} {elsewhere:.2f}\n"
        )


main()
