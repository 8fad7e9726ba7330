"""Random trees, copied each way, then changed and copied onto the same target again."""
import os
import random
import shutil

import tree
from world import Fault

MUTATED = 1000000 # a tree's second version has this on top of its seed


def leftovers(source, target, old):
    """Under a name of rcp's own, and neither copied nor there before."""
    return ['left behind: %r' % p for p in target if tree.is_own(p) and p not in source and p not in old]


def judge(result, source, target, old):
    must, may = tree.refused(old, source)
    faults = []
    if result.status != (1 if must else 0) and not (may and result.status in (0, 1)):
        faults.append('refused should be %s; %s' % (sorted(must)[:5], result.words()))
    faults += tree.compare(source, target, old, must, may)
    return faults + leftovers(source, target, old)


def one(world, way, sides, extra, transport, seed):
    """Two versions of a tree, one way. All faults."""
    here, there, login = sides
    source, sink = (there, here) if way == 'down' else (here, there)
    if way == 'local':
        source = sink = here
    box = source.fresh('from')
    target = sink.fresh('to')
    args = ['-a', *([] if way == 'local' else login + extra), '--transport=' + transport] if way != 'local' else ['-a']
    args += [('%s:' % world.host if way == 'down' else '') + box + '/t', ('%s:' % world.host if way == 'up' else '') + target + '/']
    old = {}
    for version in range(2):
        source.tree(*(['make', seed] if version == 0 else ['mutate', seed + MUTATED]), box + '/t')
        want = source.snapshot(box + '/t')
        result = world.copy(here, args)
        have = sink.snapshot(target + '/t')
        faults = judge(result, want, have, old) + tree.changed(want, source.snapshot(box + '/t'))
        faults = ['version %d: %s' % (version, f) for f in faults]
        if faults:
            return faults + ['rcp ' + ' '.join(args)]
        old = have
    return []


def users(world, opt):
    for user in opt.users.split(','):
        if user == 'root':
            yield user, world.root_sides()
        elif os.geteuid() == 0 and not world.other and shutil.which('setpriv'):
            yield user, world.user_sides()


def run(world, opt, report):
    for user, sides in users(world, opt):
        for seed in opt.seeds:
            for way in opt.ways.split(','):
                if way == 'local' and world.other:
                    continue
                transport = opt.transport or random.Random('%s %d' % (way, seed)).choice(['tcp', 'ssh'])
                if user == 'user' and transport == 'rdma':
                    continue
                try:
                    faults = one(world, way, sides, [], transport, seed)
                except Fault as e:
                    faults = [str(e)]
                again = 'tests/torture/torture trees --seeds %d --ways %s --users %s%s' % (
                    seed, way, user, '' if way == 'local' else ' --transport ' + transport)
                report.case('tree %d, %s%s, as %s' % (seed, way, '' if way == 'local' else ' by ' + transport, user), faults, again)
