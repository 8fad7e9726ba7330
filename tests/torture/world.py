"""Where a torture run happens: folders here and on the other host, users, rcp with a deadline."""
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import traceback

import tree

HERE = os.path.dirname(os.path.abspath(__file__))
DEADLINE = 120


class Fault(Exception):
    """The case can't go on."""


def run(argv, deadline=DEADLINE, check=True, **named):
    """A child with a deadline; stdin is empty. What it said."""
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=deadline, check=False, **named)
    if check and p.returncode:
        raise Fault('%s: status %d: %s' % (argv, p.returncode, p.stderr.decode('latin-1')[-500:]))
    return p


class Result:
    """What a copy ended with."""

    def __init__(self, status, out, err):
        self.status, self.err = status, err.decode('latin-1')
        self.events = []
        for line in out.decode('utf-8', 'replace').splitlines():
            try:
                self.events.append(json.loads(line))
            except ValueError:
                pass # cut off by a kill
        self.summary = next((e for e in reversed(self.events) if e.get('event') == 'summary'), {})

    def words(self):
        return 'status %s: %s' % (self.status, self.err[-400:].replace('\n', ' | '))


class Side:
    """One host: this one (prefix: how to become the user), or the one behind ssh."""

    def __init__(self, folder, prefix=(), remote=None, uid=None):
        self.folder, self.prefix, self.remote, self.uid = folder, list(prefix), remote, uid

    def argv(self, words):
        words = self.prefix + [str(w) for w in words]
        return self.remote + [shlex.join(words)] if self.remote else words

    def run(self, *words, deadline=DEADLINE, check=True):
        return run(self.argv(words), deadline, check)

    def tree(self, *words):
        """tree.py as this side's user. Here by a fork: that user may not get at our Python."""
        if self.remote:
            return self.run('python3', HERE + '/tree.py', *words).stdout
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                if self.uid is not None:
                    os.setgroups([])
                    os.setgid(self.uid)
                    os.setuid(self.uid)
                tree.main([str(w) for w in words])
                status = 0
            except Exception: # told, and the parent goes on
                traceback.print_exc()
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1]:
            raise Fault('tree.py %s failed' % ' '.join(map(str, words)))
        return b''

    def path(self, name):
        return self.folder + '/' + name

    def fresh(self, name):
        """An empty folder by this name."""
        path = self.path(name)
        if self.remote:
            self.run('sh', '-c', 'rm -rf "$1" && mkdir "$1"', 'sh', path)
        else:
            remove(path)
            self.run('mkdir', path)
        return path

    def snapshot(self, path):
        """By root where there is root: all can be read."""
        if not self.remote:
            return tree.snapshot(os.fsencode(path))
        return json.loads(self.tree('snapshot', path))


def remove(path):
    for folder, _, _ in os.walk(path, topdown=True):
        if not os.path.islink(folder):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


class World:
    """Made from what the shell part set up: TORTURE_DIR, TORTURE_SSH_CONFIG and TORTURE_HOST, or TORTURE_REMOTE=hostb for another machine."""

    def __init__(self, opt):
        self.opt = opt
        self.rcp = os.environ['RCP']
        self.dir = os.environ['TORTURE_DIR']
        self.config = os.environ.get('TORTURE_SSH_CONFIG')
        self.host = os.environ.get('TORTURE_HOST', 'box')
        self.other = os.environ.get('TORTURE_REMOTE')
        self.own = []

    def ssh(self):
        return ['ssh'] + (['-F', self.config] if self.config else []) + [self.host]

    def root_sides(self):
        """As whoever runs this, with a real ssh."""
        here = Side(self.dir)
        if not self.other:
            return here, Side(self.dir), ['-F', self.config]
        there = Side('/run/tmp/torture', remote=self.ssh())
        there.run('mkdir', '-p', there.folder)
        return here, there, ['-S', 'ssh', '--rcp-path=' + self.rcp]

    def user_sides(self):
        """As a user without rights. An account that can't log in, so a script stands in for ssh."""
        folder = tempfile.mkdtemp(prefix='rcp-torture.', dir=os.environ.get('TMPDIR', '/tmp'))
        self.own.append(folder)
        os.chmod(folder, 0o755)
        shutil.copy(self.rcp, folder)
        with open(folder + '/ssh', 'w') as f:
            f.write('#!/bin/sh\n# Runs what comes after the host here.\nwhile [ "$1" != box ]; do shift; done\nshift\nexec sh -c "$*"\n')
        os.chmod(folder + '/ssh', 0o755)
        os.mkdir(folder + '/w')
        os.chown(folder + '/w', 65534, 65534)
        prefix = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'env', 'HOME=' + folder + '/w']
        side = Side(folder + '/w', prefix, uid=65534)
        return side, side, ['-S', folder + '/ssh', '--rcp-path=' + folder + '/' + os.path.basename(self.rcp)]

    def rcp_of(self, side):
        return self.rcp if not side.prefix else os.path.dirname(side.folder) + '/' + os.path.basename(self.rcp)

    def copy(self, side, args, deadline=DEADLINE):
        argv = side.prefix + [self.rcp_of(side), '--json', *args]
        try:
            p = run(argv, deadline, check=False, cwd='/')
        except subprocess.TimeoutExpired as e:
            return Result('none within %d s' % deadline, e.stdout or b'', e.stderr or b'')
        return Result(p.returncode, p.stdout, p.stderr)

    def close(self):
        for folder in self.own:
            remove(folder)
