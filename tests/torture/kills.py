"""Copies cut off at seeded points by kill -9 of an end or of what joins them, then run again.

At any moment each name holds its old version or its new one, or nothing; the rerun makes the trees alike; and it
takes up all that the journal spoke of, and moves the rest and no more.
"""
import os
import random
import signal
import subprocess
import time

import tree
import trees
from world import DEADLINE, Fault, Result

MIB = 1 << 20
RATES = [None, None, None, 60, 30, 15]
WATCHED = '''#!/bin/sh
# Tells its server's number; see write_watched in e2e/lib.sh.
exec 3<&0
'%(rcp)s' "$@" <&3 3<&- &
echo $! >'%(dir)s/server.pid'
echo $PPID >'%(dir)s/sshd.pid'
exec 3<&-
wait $!
'''
SSH = '''#!/bin/sh
echo $$ >'%(dir)s/ssh.pid'
exec ssh "$@"
'''
# From when all of the numbers are known: the victim's first.
KILL = '''delay=$1
shift
for f; do
	n=0
	until [ -s "$f" ]; do n=$((n + 1)); [ $n -lt 1200 ] || exit 1; sleep 0.02; done
done
sleep "$delay"
kill -9 "$(cat "$1")"
'''
GONE = '''[ -s "$1" ] || exit 0
n=0
while kill -0 "$(cat "$1")" 2>/dev/null; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done
'''


class Point:
    """What is copied which way, who is killed and when: all of it by the seed."""

    def __init__(self, seed, number, transport, remote, mib):
        rng = random.Random('%d %d' % (seed, number))
        self.number = number
        self.size = mib * MIB + 4097
        self.tree_seed = rng.randrange(10**6)
        self.way = rng.choice(['up', 'down'])
        self.victim = ['source', 'sink', 'ssh' if remote or rng.random() < 0.5 else 'sshd'][number % 3]
        self.transport = transport or rng.choice(['tcp', 'tcp', 'ssh'])
        self.kind = rng.choice(['file', 'tree'])
        self.rate = rng.choice(RATES)
        self.seeded = rng.random() < 0.7 # something is at the target before
        self.changed = rng.random() < 0.15 # the source is, between the kill and the rerun
        length = (self.size / self.rate / MIB if self.rate else 0.3) + 0.15
        if self.kind == 'tree':
            length = 0.3 if not self.rate else 0.8
        if remote: # a login takes its time there, and the copy too
            length += 2
        elif number % 25 == 7:
            # Far enough for the journal to be written while the copy runs.
            self.rate, length = mib / 10, 0
        self.twice = rng.random() < 0.2 # the first rerun is killed, too
        self.early = rng.random() < 0.2 # the login may not be over
        self.delay = rng.random() * length if length else 5.5 + rng.random() * 2
        self.retries = rng.choice([0, 0, 3]) # with some, the run may come back by itself

    def process(self):
        """Whose number the kill needs: the initiator's or the server's, ssh's or its other end's."""
        if self.victim in ('ssh', 'sshd'):
            return self.victim
        return 'initiator' if (self.victim == 'source') == (self.way == 'up') else 'server'

    def words(self):
        return '%s %s by %s%s, %s killed%s after %.2f s%s%s%s' % (
            self.kind, self.way, self.transport, ' at %gM' % self.rate if self.rate else '', self.victim,
            ' twice' if self.twice else '', self.delay, ' of its own' if self.early else '', ', onto old ones' if self.seeded else '', ', changed between' if self.changed else '') + (', with retries' if self.retries else '')


class Scene:
    """A point being played."""

    def __init__(self, world, sides, point):
        self.world, self.p = world, point
        self.here, self.there, self.login = sides
        self.source, self.sink = (self.there, self.here) if point.way == 'down' else (self.here, self.there)
        self.name = 't' if point.kind == 'tree' else 'f'
        self.faults = []

    # ---- before ----

    def prepare(self):
        seed, p = self.p.tree_seed, self.p
        self.src = self.source.fresh('from') + '/' + self.name
        self.box = self.sink.fresh('to')
        self.dst = self.box + '/' + self.name
        if p.kind == 'tree':
            self.source.tree('make', seed, self.src)
            if p.seeded:
                self.sink.tree('target', seed, self.dst)
                self.source.tree('touch' if seed % 2 else 'mutate', seed, self.src)
        else:
            self.source.tree('file', seed, p.size, self.src)
            if p.seeded:
                self.sink.tree('file', seed + 1, 5000, self.dst)
        self.old, self.new = self.sink.snapshot(self.dst), self.source.snapshot(self.src)

    def args(self, rate):
        up = self.p.way == 'up'
        return ['--json', '-a', *self.login, '--transport=' + self.p.transport, '--rcp-path=' + self.there.path('watched'),
                '-S', self.here.path('ssh-watched'), *(['--bwlimit=%dK' % (rate * 1024)] if rate else []), '--retries=%d' % self.p.retries,
                ('' if up else self.world.host + ':') + self.src, (self.world.host + ':' if up else '') + self.box + '/']

    # ---- the kill ----

    def first_run(self):
        p, world = self.p, self.world
        for side in {self.here, self.there}:
            side.run('sh', '-c', 'rm -f "$1"/*.pid', 'sh', side.folder)
        side = self.there if p.process() in ('server', 'sshd') else self.here
        names = [p.process()] + ([] if p.early or side.remote or self.there.remote else ['server'])
        killer = subprocess.Popen(side.argv(['sh', '-c', KILL, 'sh', '%.3f' % p.delay] + [side.path(n + '.pid') for n in names]),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        copy = subprocess.Popen([world.rcp, *self.args(p.rate)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(self.here.path('initiator.pid'), 'w') as f:
            f.write('%d\n' % copy.pid)
        try:
            killer.wait(DEADLINE)
            if not self.sink.remote:
                self.now()
            out, err = copy.communicate(timeout=DEADLINE)
            if p.process() == 'initiator':
                # Its ssh lives until the server ends.
                self.gone(self.here, 'ssh')
            self.gone(self.there, 'server')
        finally:
            for child in (killer, copy):
                if child.poll() is None:
                    child.kill()
                    child.wait()
        self.ended(Result(copy.returncode, out, err))

    def gone(self, side, name):
        if side.run('sh', '-c', GONE, 'sh', side.path(name + '.pid'), check=False).returncode:
            self.faults.append('%s still runs after 30 s' % name)
            side.run('sh', '-c', 'kill -9 "$(cat "$1")"', 'sh', side.path(name + '.pid'), check=False)

    def ended(self, result):
        allowed = {-signal.SIGKILL, 0, 1} if self.p.process() == 'initiator' else {0, 1, 3, 6}
        if result.status not in allowed or (result.status > 1 and 'rcp: ' not in result.err):
            self.faults.append('the first run: ' + result.words())
        self.first = result

    # ---- what is there ----

    def now(self):
        """While what is left of the copy may still run."""
        for path, content in tree.finals(os.fsencode(self.dst)).items():
            known = [v[path]['digest'] for v in (self.old, self.new) if v.get(path, {}).get('kind') == 'file']
            if content not in known and not self.is_partial(path):
                self.faults.append('right after the kill %r is neither old nor new' % path)

    def is_partial(self, path):
        return tree.is_own(path) and path not in self.old

    def intact(self):
        """All that is there under its own name is old or new with all that belongs to it."""
        left = {}
        for path, have in self.sink.snapshot(self.dst).items():
            if self.is_partial(path):
                continue
            left[path] = have
            versions = [v[path] for v in (self.old, self.new) if path in v] + tree.by_other_names(path, self.old, self.new)
            keys = ['kind'] if have['kind'] == 'dir' else tree.TOLD
            if not any(not tree.differ(v, have, keys) for v in versions):
                self.faults.append('%r is neither old nor new: %s' % (path, [tree.differ(v, have, keys) for v in versions]))
        return left

    # ---- again ----

    def change(self):
        if self.p.kind == 'tree':
            self.source.tree('touch', self.p.tree_seed + 7, self.src)
        else:
            self.source.tree('file', self.p.tree_seed + 4, self.p.size, self.src)
        self.new = self.source.snapshot(self.src)

    def second_run(self):
        left = self.intact()
        claimed = self.claimed()
        if self.p.changed:
            self.change()
        # Without the limit: it is no part of what makes a partial file fit.
        result = self.world.copy(self.here, self.args(None)[1:])
        have = self.sink.snapshot(self.dst)
        self.faults += ['again: ' + f for f in trees.judge(result, self.new, have, left)]
        self.faults += tree.changed(self.new, self.source.snapshot(self.src))
        if self.p.kind == 'file':
            extra = self.sink.run('ls', '-A', self.box).stdout.decode('latin-1').split()
            if extra != [self.name]:
                self.faults.append('left behind: %r' % extra)
            self.economy(result, 0 if self.p.changed else claimed)

    def claimed(self):
        path = '%s/.%s.rcp-journal' % (self.box, self.name)
        return int(self.sink.tree('claimed', path)) if self.sink.remote else tree.claimed(path)

    def economy(self, result, claimed):
        s = result.summary
        if s.get('skipped') == 1: # it was complete, and looks it: nothing is to be moved
            if s['bytes'] or s['zero_copy_bytes'] + s['staged_bytes']:
                self.faults.append('skipped, but %d bytes were moved' % (s['zero_copy_bytes'] + s['staged_bytes']))
            return
        resumed, moved = s.get('resumed_bytes', -1), s.get('zero_copy_bytes', 0) + s.get('staged_bytes', 0)
        whole, size = self.p.tree_seed % 2 == 0, self.p.size
        if resumed != claimed:
            self.faults.append('%d bytes resumed, and the journal spoke of %d' % (resumed, claimed))
        if s.get('resent_chunks') != 0 or moved + resumed > size or (whole and moved + resumed != size):
            self.faults.append('%d bytes moved, %d resumed, %s chunks sent again, of %d' % (moved, resumed, s.get('resent_chunks'), size))
        self.resumed = resumed


def play(world, sides, point):
    scene = Scene(world, sides, point)
    try:
        scene.prepare()
        scene.first_run()
        if point.twice:
            scene.intact()
            point.delay *= 0.6
            scene.first_run()
        scene.second_run()
    except (Fault, subprocess.TimeoutExpired) as e:
        scene.faults.append(str(e)[:500])
    return scene


def install(world, sides):
    here, there, _ = sides
    for side, name, text in ((there, 'watched', WATCHED), (here, 'ssh-watched', SSH)):
        side.run('sh', '-c', 'printf %s "$2" >"$1" && chmod +x "$1"', 'sh', side.path(name), text % {'rcp': world.rcp, 'dir': side.folder})


def run(world, opt, report):
    sides = world.root_sides()
    install(world, sides)
    tally = {}
    for number in [opt.only] if opt.only is not None else range(opt.points):
        point = Point(opt.seed, number, opt.transport, bool(world.other), opt.mib)
        start = time.monotonic()
        scene = play(world, sides, point)
        again = 'tests/torture/torture kills --seed %d --only %d --mib %d%s' % (
            opt.seed, number, opt.mib, ' --transport ' + opt.transport if opt.transport else '')
        report.case('point %d: %s' % (number, point.words()), scene.faults, again)
        status = scene.first.status if hasattr(scene, 'first') else None
        print('#   first run %s, %s resumed, %.1f s' % (status, getattr(scene, 'resumed', '-'), time.monotonic() - start))
        key = '%s %s' % (point.victim, 'too late' if status in (0, 1) else 'in time')
        tally[key] = tally.get(key, 0) + 1
    print('# killed: ' + ', '.join('%s %d' % k for k in sorted(tally.items())))
