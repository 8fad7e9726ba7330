#!/usr/bin/env python3
"""Seeded copies of random trees, and copies cut off at seeded points; each failure tells how to run it again.

torture trees [--seeds A-B] [--ways up,down,local] [--users root,user]
torture kills [--points N] [--seed S] [--only N]
Both: [--transport tcp|ssh|rdma] (otherwise by seed) [--keep] [--tap]
"""
import argparse
import os
import random
import sys
import time

import kills
import trees
from world import World


def numbers(text):
    first, _, last = text.partition('-')
    return range(int(first), int(last or first) + 1)


def options():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('mode', choices=['trees', 'kills'])
    p.add_argument('--seeds', type=numbers, default=range(1, 4))
    p.add_argument('--ways', default='up,down,local')
    p.add_argument('--users', default='root,user')
    p.add_argument('--points', type=int, default=12)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--only', type=int)
    p.add_argument('--transport', choices=['tcp', 'ssh', 'rdma'])
    p.add_argument('--keep', action='store_true')
    p.add_argument('--plan', action='store_true', help='do not print the plan line')
    return p.parse_args()


class Report:
    """TAP: a failed case says what was wrong and how to have it again."""

    def __init__(self, first):
        self.count = first
        self.bad = 0
        self.start = time.monotonic()

    def case(self, name, faults, again):
        self.count += 1
        for line in faults[:20]:
            print('#   ' + ''.join(c if c.isprintable() else '?' for c in line)[:600])
        if faults:
            self.bad += 1
            print('#   %d differences; again: %s' % (len(faults), again))
        print('%s %d - %s' % ('not ok' if faults else 'ok', self.count, name), flush=True)


def main():
    opt = options()
    report = Report(int(os.environ.get('TORTURE_CASES', '0')))
    world = World(opt)
    try:
        (trees if opt.mode == 'trees' else kills).run(world, opt, report)
    finally:
        world.close()
    print('# %s: %d cases, %d failed, %.0f s' % (opt.mode, report.count, report.bad, time.monotonic() - report.start))
    if not opt.plan:
        print('1..%d' % report.count)
    return 1 if report.bad else 0


if __name__ == '__main__':
    os.umask(0o022)
    sys.exit(main())
