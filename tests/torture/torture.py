#!/usr/bin/env python3
"""Seeded copies of random trees, copies cut off at seeded points, and copies with faults of all kinds; each failure tells how to run it again.

torture trees [--seeds A-B] [--ways up,down,local] [--users root,user]
torture kills [--points N] [--seed S] [--only N] [--mib SIZE]
torture soak [--points N] [--seconds N] [--seed S] [--only N]
The first two: [--transport tcp|ssh|rdma] (otherwise by seed)
"""
import argparse
import os
import sys
import time

import kills
import soak
import trees
from world import World


def numbers(text):
    first, _, last = text.partition('-')
    return range(int(first), int(last or first) + 1)


def options():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('mode', choices=['trees', 'kills', 'soak'])
    p.add_argument('--seeds', type=numbers, default=range(1, 4))
    p.add_argument('--ways', default='up,down,local')
    p.add_argument('--users', default='root,user')
    p.add_argument('--points', type=int, default=12)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--seconds', type=int, default=0)
    p.add_argument('--mib', type=int, default=40)
    p.add_argument('--only', type=int)
    p.add_argument('--transport', choices=['tcp', 'ssh', 'rdma'])
    return p.parse_args()


class Report:
    """TAP: a failed case says what was wrong and how to have it again."""

    def __init__(self):
        self.bad = 0
        self.file = os.environ.get('TORTURE_COUNT') # of the cases of earlier runs in the same plan
        self.first = self.count = int(open(self.file).read()) if self.file and os.path.exists(self.file) else 0
        self.start = time.monotonic()

    def case(self, name, faults, again):
        self.count += 1
        for line in faults[:20]:
            print('#   ' + ''.join(c if c.isprintable() else '?' for c in line)[:600])
        if faults:
            self.bad += 1
            print('#   %d differences; again: %s' % (len(faults), again))
        print('%s %d - %s' % ('not ok' if faults else 'ok', self.count, name), flush=True)

    def end(self, mode):
        print('# %s: %d cases, %d failed, %.0f s' % (mode, self.count - self.first, self.bad, time.monotonic() - self.start))
        if self.file:
            with open(self.file, 'w') as f:
                f.write(str(self.count))
        else:
            print('1..%d' % self.count)


def main():
    opt = options()
    report = Report()
    world = World(opt)
    try:
        {'trees': trees.run, 'kills': kills.run, 'soak': soak.soak}[opt.mode](world, opt, report)
    finally:
        world.close()
    report.end(opt.mode)
    return 1 if report.bad else 0


if __name__ == '__main__':
    os.umask(0o022)
    sys.exit(main())
