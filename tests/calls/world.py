"""Where the copies of tests/calls happen: a tree, two ends on this machine, what is there afterwards."""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time

LIMIT = 30 # seconds for one rcp; most take half of one


def fill(path, size, seed):
    with open(path, 'wb') as f:
        block = bytes((i * 131 + (i >> 8) * 29 + seed) & 255 for i in range(65536))
        while size > 0:
            f.write(block[:size])
            size -= len(block)
            block = block[1:] + block[:1]


def set_xattr(path, name, value):
    try:
        os.setxattr(path, name, value, follow_symlinks=False)
    except OSError:
        pass # not on this file system


def make_tree(top):
    os.makedirs(top + '/sub/deep')
    fill(top + '/big', 2500000, 1)
    for i in range(3):
        fill(top + '/small%d' % i, 1000 + 3000 * i, 2 + i)
    fill(top + '/sub/deep/file', 70000, 9)
    open(top + '/empty', 'w').close()
    with open(top + '/sparse', 'wb') as f:
        f.truncate(3 << 20)
        f.seek(1 << 20)
        f.write(b'not a hole')
    os.link(top + '/small1', top + '/sub/linked')
    os.symlink('../small0', top + '/sub/symbolic')
    os.chmod(top + '/small2', 0o640)
    set_xattr(top + '/small0', 'user.calls', b'a value')
    set_xattr(top + '/sub', 'user.calls', b'of a directory')
    if os.geteuid() == 0:
        os.mkfifo(top + '/fifo', 0o600)
    for name in ('small0', 'sub/deep', 'sub', ''):
        os.utime(os.path.join(top, name), ns=(1600000000123456789, 1600000000123456789))


def xattrs(path):
    try:
        return {n: os.getxattr(path, n, follow_symlinks=False) for n in os.listxattr(path, follow_symlinks=False)}
    except OSError:
        return {}


def look(top):
    """name: (what it holds, what else it is)."""
    found, links = {}, {}
    for folder, folders, files in os.walk(top):
        for name in folders + files + ([''] if folder == top else []):
            path = os.path.join(folder, name)
            st = os.lstat(path)
            kind = stat.S_IFMT(st.st_mode)
            data = None
            if kind == stat.S_IFREG:
                with open(path, 'rb') as f:
                    data = f.read()
            elif kind == stat.S_IFLNK:
                data = os.readlink(path)
            rel = os.path.relpath(path, top)
            links.setdefault((st.st_dev, st.st_ino), []).append(rel)
            more = {'mode': stat.S_IMODE(st.st_mode), 'owner': (st.st_uid, st.st_gid), 'xattrs': xattrs(path)}
            if kind != stat.S_IFLNK:
                more['time'] = st.st_mtime_ns
            found[rel] = ((kind, data), more, (st.st_dev, st.st_ino))
    return {rel: (data, dict(more, links=sorted(links[ino])) if data[0] == stat.S_IFREG else more)
            for rel, (data, more, ino) in found.items()}


class Result:
    """How one rcp ended."""

    def __init__(self, status, out, err):
        self.status, self.err = status, err.decode('utf-8', 'replace')
        self.lines = self.err.splitlines()
        self.summary, self.started = None, False
        for line in out.decode('utf-8', 'replace').splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            self.started |= event.get('event') == 'start'
            if event.get('event') == 'summary':
                self.summary = event


def running(marker):
    """Processes other than this one with it among their words or in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            for file in ('cmdline', 'environ'):
                with open('/proc/%s/%s' % (pid, file), 'rb') as f:
                    if marker.encode() in f.read() and int(pid) != os.getpid():
                        found.append(int(pid))
                        break
        except OSError:
            pass
    return found


class World:
    """One worker's folder: src is shared, the target is its own. Both ends run here, ssh is a script."""

    def __init__(self, program, shared):
        self.program, self.shared = program, shared
        self.src = shared + '/tree'
        self.dir = tempfile.mkdtemp(prefix='calls.', dir=shared)
        self.dst = self.dir + '/dst'
        os.mkdir(self.dir + '/home')
        self.ssh = self.dir + '/ssh-here'
        with open(self.ssh, 'w', encoding='ascii') as f:
            f.write('#!/bin/sh\n# The last word is the command.\nfor last; do :; done\n'
                    'SSH_CONNECTION="127.0.0.1 1 127.0.0.1 2" RCP_CALLS=$THERE_CALLS\n'
                    'export SSH_CONNECTION RCP_CALLS\nunset THERE_CALLS\n: >>"$CALLS_DIR/there"\n'
                    # A server that has confined itself opens no file for a sanitizer's report.
                    'ASAN_OPTIONS=${ASAN_OPTIONS#*:} UBSAN_OPTIONS=${UBSAN_OPTIONS#*:}\n'
                    'sh -c "$last" 2>>"$CALLS_DIR/there.err"\nstatus=$?\n'
                    'echo "$status" >>"$CALLS_DIR/there.rc"\ncat "$CALLS_DIR/there.err" >&2\nexit "$status"\n')
        os.chmod(self.ssh, 0o755)

    def clear(self, prepared=None):
        for name in os.listdir(self.dir):
            path = self.dir + '/' + name
            if name.startswith(('asan', 'report', 'count', 'there')):
                os.unlink(path)
        shutil.rmtree(self.dst, ignore_errors=True)
        if prepared:
            subprocess.run(['cp', '-a', prepared, self.dst], check=True)
        else:
            os.mkdir(self.dst)

    def environment(self, here, there):
        env = {k: v for k, v in os.environ.items() if k in ('PATH', 'TMPDIR')}
        log = 'log_path=%s/asan:' % self.dir
        return dict(env, LC_ALL='C.UTF-8', HOME=self.dir + '/home', CALLS_DIR=self.dir, THERE_CALLS=there, RCP_CALLS=here,
                    ASAN_OPTIONS=log + 'exitcode=77:allocator_may_return_null=1', LSAN_OPTIONS='suppressions=%s/lsan:print_suppressions=0' % self.shared,
                    UBSAN_OPTIONS=log + 'print_stacktrace=1:halt_on_error=1')

    def rcp(self, words, here='', there=''):
        argv = [self.program, '--json', '-S', self.ssh, '--rcp-path=' + self.program] + words
        with open(self.dir + '/out', 'wb+') as out, open(self.dir + '/err', 'wb+') as err:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.dir,
                                 env=self.environment(here, there), start_new_session=True)
            try:
                status = p.wait(LIMIT)
            except subprocess.TimeoutExpired:
                status = 'no end'
                p.kill()
                p.wait()
            out.seek(0)
            err.seek(0)
            return Result(status, out.read(), err.read())

    def text(self, name):
        try:
            with open(self.dir + '/' + name, encoding='utf-8', errors='replace') as f:
                return f.read()
        except OSError:
            return ''

    def sanitizer(self):
        there = self.text('there.err')
        found = ''.join(self.text(n) for n in sorted(os.listdir(self.dir)) if n.startswith('asan'))
        return found + (there if re.search(r'ERROR: \w+Sanitizer|runtime error:', there) else '')

    def stay(self):
        """Ends what is still running, and says whether there was any."""
        end = time.monotonic() + 5
        left = running(self.dir)
        while left and time.monotonic() < end: # a sanitizer's helper, on its way out
            time.sleep(0.05)
            left = running(self.dir)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return left
