"""Copies with random faults for as long as one likes: of NICs, of processes, of signals, by the seed.

Three kinds of rounds: both ends on software verbs with a script in place of ssh; through a daemon that lives as long as the
soak, on software verbs, too; through a real sshd. Each end has a deadline. Whatever a first run ends with, each name holds
its old version or its new one, nothing of the round lives on, and a run without faults completes it. The daemon's descriptors
and memory don't grow.
"""
import os
import random
import signal
import subprocess
import time

import tree
from world import Fault, Result, run

DEADLINE = 150
WARM = 10 # rounds, before the daemon is measured
STATUSES = {0, 1, 3, 4, 5, 6}
NICS = ['roce2 rto=1000', 'roce2 rto=1000', 'roce2 msg=8388608 inline=0 cqe=64 rto=1000', 'roce2 sge=1 rto=1000', 'roce1 rto=1000',
        'ib rto=1000', 'ib addr=1 rto=1000', 'iwarp', 'iwarp imm=1', 'roce2 net=1 rto=1000; roce2 net=1 rto=1000', 'ib addr=1,roce2 rto=1000']
CALLS = ['ibv_open_device', 'ibv_query_device', 'ibv_query_port', 'ibv_alloc_pd', 'ibv_reg_mr', 'ibv_create_cq', 'ibv_create_comp_channel',
         'ibv_post_send', 'ibv_post_recv', 'ibv_poll_cq', 'ibv_req_notify_cq', 'rdma_create_id', 'rdma_bind_addr', 'rdma_listen',
         'rdma_resolve_addr', 'rdma_resolve_route', 'rdma_create_qp', 'rdma_connect', 'rdma_accept', 'ibv_create_qp', 'ibv_modify_qp']
ERRORS = ['ENOMEM', 'EINVAL', 'EIO', 'EACCES', 'ENODEV', 'EAGAIN']
STATES = ['RETRY_EXC', 'RNR_RETRY_EXC', 'REM_ACCESS', 'REM_OP', 'LOC_LEN', 'LOC_PROT', 'WR_FLUSH', 'GENERAL', 'FATAL']
SSH = '''#!/bin/sh
# In place of ssh: the last word is the command, run here with the other end's NICs and faults.
for last; do :; done
SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2'
RCP_FAKE_NICS=$THERE_NICS RCP_FAKE_FAULTS=$THERE_FAULTS
export SSH_CONNECTION RCP_FAKE_NICS RCP_FAKE_FAULTS
sh -c "$last" 2>>'%(dir)s/there.err'
status=$?
echo "$status" >>'%(dir)s/there.rc'
exit "$status"
'''
CONF = '''listen = 127.0.0.1
port = %(port)d
keys = %(dir)s/keys
[all]
path = %(dir)s
writable = yes
keys = *
%(user)s
'''


def rules(rng):
    """Up to three faults of NICs, as RCP_FAKE_FAULTS has them."""
    out = []
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        n = rng.choice([1, 2, 3, rng.randrange(1, 40), rng.randrange(1, 300)])
        out.append(rng.choice([
            'call:%s %d %s' % (rng.choice(CALLS), rng.choice([1, 1, 2, n]), rng.choice(ERRORS)),
            'wc:send %d %s' % (n, rng.choice(STATES)), 'wc:recv %d %s' % (n, rng.choice(STATES)),
            'wc-late:send %d %d' % (n, rng.randrange(1, 3000)), 'wc-late:recv %d %d' % (n, rng.randrange(1, 3000)),
            'wc-lost:send %d' % n, 'wc-lost:recv %d' % n, 'flush:send %d' % n, 'port-down %d' % n, 'fatal %d' % n, 'rnr %d' % n,
            'retry %d' % n, 'access %d' % n, 'flip %d %d' % (n, rng.randrange(0, 4096)), 'swap %d' % n, 'forge %d %d' % (n, rng.randrange(1, 65536)),
            'cm:ESTABLISHED 1 lost', 'cm:CONNECT_REQUEST 1 late %d' % rng.randrange(1, 4000), 'cm:REQ %d lost' % rng.randrange(1, 3),
            'cm:REP 1 lost', 'slow:rdma_connect 1 %d' % rng.randrange(1, 3000), 'private 1 %d' % rng.randrange(0, 200)]))
    return '; '.join(out)


class Round:
    """What is done: all of it by the seed."""

    def __init__(self, seed, number):
        rng = self.rng = random.Random('soak %d %d' % (seed, number))
        self.number = number
        self.kind = rng.choice(['fake', 'fake', 'fake', 'daemon', 'daemon', 'ssh'])
        self.way = rng.choice(['up', 'down'])
        self.nics = rng.choice(NICS) if self.kind == 'fake' else 'roce2 rto=1000'
        self.faults = [rules(rng) if self.kind != 'ssh' else '', rules(rng) if self.kind == 'fake' else '']
        self.signal = rng.choice([None, None, None, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        self.victim = rng.choice(['rcp', 'server'])
        self.delay = rng.random() * rng.choice([0.3, 2, 6])
        self.options = [*rng.choice([[], ['--encrypt=always'], ['--encrypt=never']]), *rng.choice([[], ['-p'], ['-a']]),
                        *rng.choice([[], ['--slots=4'], ['--slots=64']]), *rng.choice([[], ['--chunk-size=64K'], ['--chunk-size=16M']]),
                        *rng.choice([[], [], ['--verify'], ['--fsync'], ['--source=staged']]),
                        *rng.choice([[], ['--retries=0'], ['--retries=1']]), *rng.choice([[], [], ['--bwlimit=8M'], ['--bwlimit=30M']]),
                        *(['--connect=oob'] if self.nics == 'ib rto=1000' else [])]

    def words(self):
        what = '%s %s' % (self.kind, self.way)
        if self.signal:
            what += ', %s gets %s after %.2f s' % (self.victim, signal.Signals(self.signal).name, self.delay)
        return what + ', ' + ' '.join(self.options) + ''.join(', %s: %s' % w for w in zip(['here', 'there'], self.faults) if w[1])


class Files:
    """Regular files of two versions: what is at the target before, and what comes."""

    def __init__(self, rng, source, target):
        self.source, self.target = source, target
        self.old, self.new = {}, {}
        for i in range(rng.choice([1, 3, 40, 300])):
            name = 'd%d/f%d' % (i % 7, i)
            size = rng.choice([0, 1, 5000, 70000, rng.randrange(1, 3 << 20) if i < 12 else 300])
            self.new[name] = self.write(source + '/t/' + name, rng.randbytes(size))
            if rng.random() < 0.3:
                self.old[name] = self.write(target + '/t/' + name, rng.randbytes(rng.randrange(1, 5000)))

    @staticmethod
    def write(path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(data)
        return tree.digest(path)

    def wrong(self):
        """Names that hold neither version, or both ends' files that are not there at all."""
        out = []
        for path, have in tree.finals(os.fsencode(self.target + '/t')).items():
            if not tree.is_own(path) and have not in (self.old.get(path), self.new.get(path)):
                out.append('%r is neither old nor new' % path)
        return out

    def missing(self):
        have = tree.finals(os.fsencode(self.target + '/t'))
        out = ['%r is not the source' % n for n, digest in self.new.items() if have.get(n) != digest]
        return out + ['left behind: %r' % n for n in have if n not in self.new] + [
            'left behind: %r' % n for n in os.listdir(self.target) if n != 't']


class Daemon:
    """One for the whole soak: what it holds is measured."""

    def __init__(self, world, program):
        self.dir, self.program = world.dir, program
        self.key = self.dir + '/soak.key'
        os.mkdir(self.dir + '/keys', 0o700)
        run([program, '--keygen', 'soak', self.key])
        run(['cp', self.key, self.dir + '/keys/soak'])
        for _ in range(20):
            self.port = random.randrange(20000, 32000)
            if self.start():
                return
        raise Fault('the daemon does not start: ' + self.said()[-300:])

    def said(self):
        with open(self.dir + '/daemon.log', errors='replace') as f:
            return f.read()

    def start(self):
        with open(self.dir + '/conf', 'w') as f:
            f.write(CONF % {'dir': self.dir, 'port': self.port, 'user': '' if os.geteuid() else 'user = root'})
        env = dict(os.environ, RCP_FAKE='soak-%d' % os.getpid(), RCP_FAKE_NICS='roce2 rto=1000', RCP_FAKE_FAULTS='')
        with open(self.dir + '/daemon.log', 'w') as log:
            self.child = subprocess.Popen([self.program, '--daemon', '--config=' + self.dir + '/conf'], env=env,
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 20
        while time.monotonic() < end and self.child.poll() is None:
            if 'serving' in self.said():
                return True
            time.sleep(0.05)
        self.stop()
        return False

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                raise Fault('the daemon does not end') from None

    def holds(self):
        """(open descriptors, KiB of memory of its own)"""
        proc = '/proc/%d/' % self.child.pid
        with open(proc + 'status') as f:
            rss = next(int(line.split()[1]) for line in f if line.startswith('RssAnon'))
        return len(os.listdir(proc + 'fd')), rss


class Soak:
    def __init__(self, world, opt):
        self.world, self.opt = world, opt
        self.fake = os.environ.get('RCP_FAKE_PROGRAM') or os.path.join(os.path.dirname(world.rcp), '../tests/fake/rcp-fake')
        if not os.path.exists(self.fake):
            raise Fault('rcp-fake was not built; RCP_FAKE_PROGRAM names it')
        self.dir = world.dir
        with open(self.dir + '/ssh-here', 'w') as f:
            f.write(SSH % {'dir': self.dir})
        os.chmod(self.dir + '/ssh-here', 0o755)
        self.programs = {os.path.realpath(p) for p in (world.rcp, self.fake)}
        self.daemon = Daemon(world, self.fake)
        self.first = None

    # ---- who lives ----

    def living(self):
        """Processes of ours but the daemon: (pid, is it a server?)"""
        out = []
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open('/proc/%s/environ' % pid, 'rb') as f:
                    mine = ('TORTURE_DIR=' + self.dir).encode() in f.read().split(b'\0')
                with open('/proc/%s/stat' % pid) as f:
                    state, parent = f.read().rsplit(')', 1)[1].split()[:2]
                with open('/proc/%s/cmdline' % pid, 'rb') as f:
                    server = b'--server' in f.read().split(b'\0') or int(parent) == self.daemon.child.pid
                exe = os.path.realpath('/proc/%s/exe' % pid)
            except (OSError, ValueError):
                continue
            if state != 'Z' and exe in self.programs and int(pid) != self.daemon.child.pid and (mine or server):
                out.append((int(pid), server))
        return out

    def quiet(self):
        """Whoever is left after the round's end is a hang, and is ended."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            left = self.living()
            if not left:
                return []
            time.sleep(0.1)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        return ['%d processes live on after 60 s' % len(left)]

    # ---- one round ----

    def argv(self, r, faults):
        src, dst = self.dir + '/from/t', self.dir + '/to/'
        env = dict(os.environ, RCP_FAKE='soak-%d-%d' % (os.getpid(), r.number), RCP_FAKE_NICS=r.nics, THERE_NICS=r.nics,
                   RCP_FAKE_FAULTS=faults[0], THERE_FAULTS=faults[1])
        program, login, far = self.fake, ['-S', self.dir + '/ssh-here', '--rcp-path=' + self.fake], 'box:%s'
        if r.kind == 'ssh':
            program, login, far = self.world.rcp, ['-F', self.world.config, '--rcp-path=' + self.world.rcp], 'box:%s'
        elif r.kind == 'daemon':
            env['RCP_FAKE'] = 'soak-%d' % os.getpid()
            login, far = ['--key=' + self.daemon.key], 'rcp://127.0.0.1:%d/all%%s' % self.daemon.port
            src, dst = ('/from/t', dst) if r.way == 'down' else (src, '/to/')
        ends = [far % src, dst] if r.way == 'down' else [src, far % dst]
        return [program, '--json', '-r', *login, *r.options, *ends], env

    def strike(self, r, copy):
        """The signal, when its time has come and as soon as there is one to get it."""
        end = time.monotonic() + 20
        time.sleep(r.delay)
        while copy.poll() is None and time.monotonic() < end:
            victims = [copy.pid] if r.victim == 'rcp' else [pid for pid, server in self.living() if server]
            if victims:
                try:
                    os.kill(victims[0], r.signal)
                except ProcessLookupError:
                    pass
                return
            time.sleep(0.02)

    def copy(self, r, faults, struck):
        argv, env = self.argv(r, faults)
        for name in ('there.err', 'there.rc'):
            with open(self.dir + '/' + name, 'w'):
                pass
        copy = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if struck and r.signal:
                self.strike(r, copy)
            out, err = copy.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            copy.kill()
            out, err = copy.communicate()
            return Result('none within %d s' % DEADLINE, out, err)
        return Result(copy.returncode, out, err)

    def ended(self, r, result, struck):
        """Faults of how a run ended; struck: by a signal, maybe."""
        with open(self.dir + '/there.rc') as f:
            there = {int(line) for line in f}
        with open(self.dir + '/there.err', errors='replace') as f:
            said = result.err + f.read()
        allowed = set(STATUSES)
        if struck and r.signal:
            allowed |= {-r.signal, 128 + r.signal, 130, 143}
        if any('slow' in f for f in r.faults): # a call that blocks in the kernel is not waited for
            allowed |= {99}
        faults = []
        if result.status not in allowed:
            faults.append('status %s' % result.status)
        faults += ['the server\'s status %d' % s for s in there - allowed - {255}]
        if result.status in (3, 4, 5, 6) and 'rcp: ' not in result.err:
            faults.append('status %d without a word' % result.status)
        for bad in ('fake verbs', 'Sanitizer', 'runtime error', 'Assertion'):
            if bad in said and not (99 in allowed and 'at exit' in said):
                faults.append('said: ' + next(line for line in said.splitlines() if bad in line))
        return faults + (['its words: ' + result.words()] if faults else [])

    def play(self, r):
        for name in ('from', 'to'):
            run(['rm', '-rf', self.dir + '/' + name])
            os.mkdir(self.dir + '/' + name)
        os.mkdir(self.dir + '/to/t')
        files = Files(r.rng, self.dir + '/from', self.dir + '/to')
        first = self.copy(r, r.faults, True)
        faults = self.ended(r, first, True) + self.quiet() + files.wrong()
        if first.status == 0:
            faults += files.missing()
        again = self.copy(r, ['', ''], False)
        faults += ['again: ' + f for f in self.ended(r, again, False) + self.quiet() + files.missing()]
        if again.status != 0:
            faults.append('again: ' + again.words())
        if self.opt.only is not None:
            print(first.err)
        r.ended = first.status
        return faults

    def grown(self, number):
        """The daemon after its children have ended."""
        if self.daemon.child.poll() is not None:
            return ['the daemon has ended with %s' % self.daemon.child.returncode]
        now = self.daemon.holds()
        if number == WARM:
            self.first = now
        if not self.first:
            return []
        end = time.monotonic() + 10 # until it has seen the end of the last child
        while now[0] > self.first[0] and time.monotonic() < end:
            time.sleep(0.05)
            now = self.daemon.holds()
        grown = ['the daemon holds %d descriptors and %d KiB, %d and %d before' % (*now, *self.first)]
        return grown if now[0] > self.first[0] or now[1] > self.first[1] + 2048 else []


def run_for(soak, opt, report):
    end, number, tally = time.monotonic() + opt.seconds, 0, {}
    while time.monotonic() < end if opt.seconds else number < opt.points:
        number = opt.only if opt.only is not None else number + 1
        r = Round(opt.seed, number)
        start = time.monotonic()
        try:
            faults = soak.play(r) + soak.grown(number)
        except (Fault, OSError) as e:
            faults = [str(e)[:500]]
        again = 'tests/torture/torture soak --seed %d --only %d' % (opt.seed, number)
        report.case('round %d: %s' % (number, r.words()), faults, again)
        print('#   first run %s, %.1f s' % (getattr(r, 'ended', None), time.monotonic() - start), flush=True)
        key = '%s %s' % (r.kind, getattr(r, 'ended', None))
        tally[key] = tally.get(key, 0) + 1
        if opt.only is not None:
            break
    print('# ended with: ' + ', '.join('%s %d' % k for k in sorted(tally.items())))
    if soak.first:
        print('# the daemon held %d descriptors and %d KiB, and holds %d and %d' % (*soak.first, *soak.daemon.holds()))


def soak(world, opt, report):
    s = Soak(world, opt)
    try:
        run_for(s, opt, report)
    finally:
        s.daemon.stop()
