#!/usr/bin/env python3
"""Each allocation and each system call of rcp fails in turn, in whole copies. See `wrapped` for what and how.

calls.py                     a sample: every place once, as far as --budget reaches
calls.py --all               all plans, both ends, the first --most calls of every place and its last, every way to fail
calls.py --case NAME         one again, and what was said; NAME as a failure tells it
Also: --plans A,B  --seed N  --budget SECONDS  --jobs N  --most N  --only TEXT  --list
"""
import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time

import sites
from case import PLANS, Case, Judge
from world import World, look, make_tree


# What whole runs found and a sample may miss: these come first in each.
FOUND = ('local/here/malloc@send_walk.c:',)


def options():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('--all', action='store_true')
    p.add_argument('--case')
    p.add_argument('--plans', default=','.join(x.name for x in PLANS))
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--budget', type=float)
    p.add_argument('--jobs', type=int, default=os.cpu_count() or 1)
    p.add_argument('--most', type=int, default=6)
    p.add_argument('--only', default='')
    p.add_argument('--list', action='store_true')
    return p.parse_args()


# What libraries leave behind when they have no memory is theirs.
SUPPRESS = 'leak:libcrypto\nleak:libssl\nleak:libuv\nleak:libc.so\n'


class Driver:
    def __init__(self, o, program):
        self.o = o
        self.dir = tempfile.mkdtemp(prefix='rcp-calls.', dir=os.environ.get('E2E_DIR'))
        make_tree(self.dir + '/tree')
        with open(self.dir + '/lsan', 'w', encoding='ascii') as f:
            f.write(SUPPRESS)
        self.program = program
        self.want = look(self.dir + '/tree')
        self.table = sites.wrapped()
        self.sites = sites.Sites(program)
        self.counts = {}
        self.lock = threading.Lock()
        self.ran = self.hit = self.bad = 0
        self.start = self.begun = time.monotonic()
        self.first = World(program, self.dir)

    def end(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def follow(self):
        """The tree as a copy without -a has it: links are what they point to, FIFOs are left out."""
        w = self.first
        w.clear()
        r = w.rcp(['-r', w.src, w.dst])
        if r.status not in (0, 1):
            raise SystemExit('a plain copy: %s %s' % (r.status, r.err))
        return look(w.dst + '/tree')

    def prepare(self, plan):
        """A copy that was cut off: its state is kept for all cases of the plan."""
        w = self.first
        place = next(x for x in sites.read_counts(w.dir + '/count-there') if x[0] == plan.faults)
        w.clear()
        rule = '%s@0x%x:4+:ENOSPC' % place
        r = w.rcp(plan.words(w), there='fail=' + rule)
        if r.status != 5:
            raise SystemExit('%s: no partial copy: %s %s' % (plan.name, r.status, r.err))
        plan.prepared = self.dir + '/prepared-' + plan.name
        os.rename(w.dst, plan.prepared)

    def count(self, plan):
        """A run without faults: what is called, and how often. It must end well itself."""
        w = self.first
        for again in range(2 if plan.faults else 1):
            if again:
                self.prepare(plan)
            w.clear(plan.prepared)
            seam = 'report=%s/report-%%s count=%s/count-%%s' % (w.dir, w.dir)
            r = w.rcp(plan.words(w), *[seam.replace('%s', e) for e in ('here', 'there')])
        case = Case(plan, 'here', None, 1, False, None)
        judge = Judge(w, self.want, self.followed)
        faults = judge.process(case, r) + judge.disk(case, r, *judge.target())
        if r.status != 0 or faults:
            raise SystemExit('%s, undisturbed: status %s %s %s' % (plan.name, r.status, r.err, faults))
        for end in plan.ends:
            counts = sites.read_counts('%s/count-%s' % (w.dir, end))
            if not counts:
                raise SystemExit('%s: no calls were counted' % plan.name)
            self.sites.learn(counts)
            self.counts[plan.name, end] = counts

    def cases(self):
        """All of them, in order."""
        for plan in self.plans:
            for end in plan.ends:
                for site in self.sites.of(self.counts[plan.name, end]):
                    for how in self.table[site.call]:
                        if self.sites.left_alone(site.call, self.sites.names[site.call, site.place], how.word):
                            continue
                        for n in sites.numbers(site.count, self.o.most):
                            yield Case(plan, end, site, n, False, how)
                        if not how.survives and site.count > 1:
                            yield Case(plan, end, site, 1, True, how)

    def sample(self):
        """FOUND; every place once, wherever it is seen first, in an order of chance; then the rest."""
        rng = random.Random(self.o.seed)
        places, found, first, rest = set(), [], [], []
        all_cases = list(self.cases())
        rng.shuffle(all_cases)
        for c in all_cases:
            if c.name().startswith(FOUND):
                found.append(c)
                continue
            key = (c.site.call, c.site.place)
            (rest if key in places else first).append(c)
            places.add(key)
        return found + first + rest

    def run(self, case, judge):
        out = {}
        faults = judge.run(case, out)
        with self.lock:
            self.ran += 1
            self.hit += out['hit']
            if faults:
                self.bad += 1
            self.tell(case, faults, out)

    def tell(self, case, faults, out):
        if faults:
            print('not ok %d - %s' % (self.ran, case.name()))
            for f in faults[:8]:
                print('#   ' + f[:1500])
            print('#   status %s' % out['status'])
            for line in out['err'].splitlines()[:8]:
                print('#     ' + line[:300])
            print('#   again: RCP_CALLS_PROGRAM=%s tests/calls/calls.py --case %s' % (self.program, case.name()), flush=True)
        elif self.o.case or self.o.all:
            print('ok %d - %s%s' % (self.ran, case.name(), '' if out['hit'] else ' # not reached'), flush=True)
        if self.o.case:
            print(out['report'] + out['err'], end='')

    def work(self, cases, w):
        judge = Judge(w, self.want, self.followed)
        while True:
            with self.lock:
                over = self.o.budget and self.ran >= 20 and time.monotonic() - self.begun > self.o.budget
                case = next(cases, None) if not over else None
            if not case:
                return
            self.run(case, judge)

    def main(self):
        self.plans = [x for x in PLANS if x.name in self.o.plans.split(',')]
        if self.o.case:
            self.plans = [x for x in PLANS if x.name == self.o.case.split('/')[0]]
        self.followed = self.follow()
        for plan in self.plans:
            self.count(plan)
        cases = list(self.cases()) if self.o.all or self.o.case or self.o.list else self.sample()
        cases = [c for c in cases if self.o.only in c.name() and (not self.o.case or c.name() == self.o.case)]
        if self.o.list:
            print('\n'.join(c.name() for c in cases))
            return 0
        if not cases:
            raise SystemExit('no such case')
        queue, self.begun = iter(cases), time.monotonic()
        threads = [threading.Thread(target=self.work, args=(queue, World(self.program, self.dir))) for _ in range(self.o.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        places = {p for c in self.counts.values() for p in c}
        if look(self.dir + '/tree') != self.want:
            self.bad += 1
            print('# the source is not what it was')
        print('# %d of %d cases, %d failed a call, at %d places of %d functions: %d bad, %.0f s' % (
            self.ran, len(cases), self.hit, len(places), len({p[0] for p in places}), self.bad, time.monotonic() - self.start))
        print('%s 1 - every call fails' % ('not ok' if self.bad or not self.hit else 'ok') if not self.o.all else '# end')
        return 1 if self.bad or not self.hit else 0


def main():
    o = options()
    program = os.path.abspath(os.environ.get('RCP_CALLS_PROGRAM', 'build-asan/tests/calls/rcp-calls'))
    driver = Driver(o, program)
    try:
        return driver.main()
    finally:
        driver.end()


if __name__ == '__main__':
    sys.exit(main())
