#!/usr/bin/env python3
"""Random trees by seed, what is in them, and how two of them differ.

tree.py make SEED DIR        a new tree; target: without names that rcp takes for its own
tree.py mutate SEED DIR      a later version of it; touch: all names and types stay
tree.py file SEED BYTES PATH
tree.py snapshot DIR
tree.py claimed JOURNAL

Paths are bytes; in snapshots they are strings of their bytes as Latin-1, so that JSON carries them.
"""
import errno
import hashlib
import json
import os
import random
import stat
import struct
import sys
import zlib

MIB = 1 << 20
SIZES = [0, 1, 4095, 4096, 4097, 65535, 65536, 65537]
LARGE = [MIB - 1, MIB, MIB + 1, 2 * MIB + 4096, 3 * MIB + 12345]
NAMES = [b'with space', b'new\nline', b"quo'te", b'dou"ble', b'st*r', b'-rf', b'--', b'\xff\xfe\x80', b'caf\xc3\xa9', b'.hidden',
         b'$HOME', b'`id`', b'back\\slash', b'a;b&c', b'tab\t', b'\x01\x1b[31m', b'host:name', b'~', b'%s%n', b'{a,b}', b'..x', b'...',
         b' ', b'trailing ', b'n' * 255, '\u00e9'.encode() * 127 + b'x', b'\xe2\x80\xae' + b'bidi', b'?', b'[a-z]', b'#x#', b'@x', b'x\r']
OWN = [b'.rcp-part', b'.rcp-journal', b'.rcp-make', b'.rcp-done']
OWNERS = [0, 0, 1, 12345, 65534]
ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
COPIED = ('user.', 'trusted.', 'security.capability', ACCESS, DEFAULT)


def is_own(path):
    """Of a name: rcp's kind for what is not complete yet, which a target does not take."""
    name = path.rsplit('/', 1)[-1].encode('latin-1')
    return name.startswith(b'.') and any(name.endswith(s) and len(name) > len(s) + 1 for s in OWN)


def content(rng, size):
    return rng.randbytes(size)


def acl(rng, mode):
    """system.posix_acl_*: version, then tag, permissions and number of each."""
    entries = [(0x01, mode >> 6 & 7 | 4, 0xffffffff), (0x02, rng.randrange(8), rng.choice([1, 12345])), (0x04, mode >> 3 & 7, 0xffffffff),
               (0x10, rng.randrange(8), 0xffffffff), (0x20, mode & 7, 0xffffffff)]
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries)


def quietly(call, *args, **named):
    """What this user or file system can't do is simply not in the tree: the source is the truth."""
    try:
        call(*args, **named)
    except OSError as e:
        if e.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSPC, errno.EINVAL, errno.ENOTSUP):
            raise


class Maker:
    def __init__(self, seed, root):
        self.rng = random.Random(seed)
        self.root = root
        self.privileged = os.geteuid() == 0
        self.serial = 0
        self.files = []

    def name(self):
        self.serial += 1
        if self.rng.random() < 0.5:
            return b'n%d' % self.serial
        name = self.rng.choice(NAMES)
        return name

    def free(self, directory):
        for _ in range(50):
            path = directory + b'/' + self.name()
            if len(path) < 3500 and not os.path.lexists(path):
                return path
        return directory + b'/u%d' % self.serial

    # ---- contents ----

    def sparse(self, path):
        rng, size = self.rng, self.rng.choice([MIB, 3 * MIB + 5, 6 * MIB])
        with open(path, 'wb') as f:
            f.truncate(size)
            for where in rng.sample(['start', 'middle', 'end'], rng.randrange(3)):
                data = content(rng, rng.choice([1, 4096, 70000]))
                at = {'start': 0, 'middle': rng.randrange(size // 2), 'end': size - len(data)}[where]
                f.seek(at)
                f.write(data)

    def file(self, path):
        rng = self.rng
        if rng.random() < 0.1:
            self.sparse(path)
        else:
            size = rng.choice(LARGE) if rng.random() < 0.15 else rng.choice(SIZES + [rng.randrange(30000)])
            with open(path, 'wb') as f:
                f.write(content(rng, size))
        self.files.append(path)

    def link(self, path):
        rng = self.rng
        to = rng.choice([b'nowhere', b'/nonexistent/\xff', b'/dev/null', b'.', b'..', os.path.basename(rng.choice(self.files or [b'x'])),
                         os.path.relpath(rng.choice(self.dirs), os.path.dirname(path)), b'n' * 1000])
        os.symlink(to, path)

    def leaf(self, path):
        rng = self.rng
        kind = rng.random()
        if kind < 0.70:
            self.file(path)
        elif kind < 0.80:
            self.link(path)
        elif kind < 0.88 and self.files:
            quietly(os.link, rng.choice(self.files), path, follow_symlinks=False)
        elif kind < 0.92:
            os.mkfifo(path)
        elif kind < 0.96:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        elif self.privileged:
            quietly(os.mknod, path, rng.choice([stat.S_IFCHR, stat.S_IFBLK]) | 0o600, os.makedev(rng.randrange(1, 200), rng.randrange(300)))

    # ---- metadata ----

    def mtime(self):
        second = self.rng.choice([1000000000, 1500000000, -1, -315360000, 0, 4000000000, 9000000000]) + self.rng.randrange(10**6)
        return second * 10**9 + self.rng.randrange(10**9)

    def mode(self, st):
        rng, directory = self.rng, stat.S_ISDIR(st.st_mode)
        mode = rng.choice([0o755, 0o700, 0o555, 0o750, 0o1777, 0o2755, 0o711] if directory else
                          [0o644, 0o600, 0o444, 0o755, 0o640, 0o4755, 0o2755, 0o6711, 0o1644, 0o400])
        return mode | (0o500 if directory else 0o400) # unreadable is another test's

    def attributes(self, path, st):
        rng = self.rng
        if rng.random() < 0.3 and (stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode)):
            for _ in range(rng.randrange(1, 4)):
                name = rng.choice([b'user.a', b'user.b.c', b'user.\xff \n', b'user.' + b'l' * 100])
                quietly(os.setxattr, path, name, content(rng, rng.choice([0, 1, 30, 600])), follow_symlinks=False)
        if self.privileged and rng.random() < 0.1:
            quietly(os.setxattr, path, b'trusted.t', b'v', follow_symlinks=False)
        if self.privileged and stat.S_ISREG(st.st_mode) and rng.random() < 0.05:
            quietly(os.setxattr, path, b'security.capability', struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0))

    def dress(self, path):
        """Everything but the name and content; the times last."""
        rng, st = self.rng, os.lstat(path)
        if self.privileged:
            os.chown(path, rng.choice(OWNERS), rng.choice(OWNERS), follow_symlinks=False)
        self.attributes(path, st)
        if not stat.S_ISLNK(st.st_mode):
            mode = self.mode(st)
            os.chmod(path, mode)
            if rng.random() < 0.15:
                quietly(os.setxattr, path, ACCESS, acl(rng, mode))
            if stat.S_ISDIR(st.st_mode) and rng.random() < 0.15:
                quietly(os.setxattr, path, DEFAULT, acl(rng, 0o755))
        time = self.mtime()
        os.utime(path, ns=(time, time), follow_symlinks=False)

    # ---- all of it ----

    def own_names(self):
        """Beside a file, what looks like its partial file, journal, or link in the making."""
        for path in self.rng.sample(self.files, min(2, len(self.files))):
            head, name = os.path.split(path)
            if len(name) < 200:
                other = head + b'/.' + name + self.rng.choice(OWN)
                if not os.path.lexists(other):
                    with open(other, 'wb') as f:
                        f.write(content(self.rng, self.rng.choice(SIZES)))

    def make(self, own=True):
        rng = self.rng
        os.mkdir(self.root, 0o700)
        self.dirs = [self.root]
        for _ in range(rng.randrange(4, 14)):
            path = self.free(rng.choice(self.dirs))
            os.mkdir(path, 0o700)
            self.dirs.append(path)
        if rng.random() < 0.3:
            deep = self.root
            for i in range(60):
                deep += b'/deep-%d' % i
                os.mkdir(deep, 0o700)
            self.dirs.append(deep)
        for _ in range(rng.randrange(20, 70)):
            self.leaf(self.free(rng.choice(self.dirs)))
        if rng.random() < 0.25 and own:
            self.own_names()
        dress_all(self)


def dress_all(maker):
    done = set()
    for path in everything(maker.root):
        st = os.lstat(path)
        if (st.st_dev, st.st_ino) not in done:
            done.add((st.st_dev, st.st_ino))
            maker.dress(path)


def everything(root):
    """Every path, what is in a directory before the directory itself."""
    found = []
    if os.path.isdir(root) and not os.path.islink(root):
        for name in sorted(os.listdir(root)):
            found += everything(root + b'/' + name)
    return found + [root]


# ---- another version of a tree ----

class Mutator(Maker):
    """gentle: no name appears, goes or becomes another type."""

    def __init__(self, seed, root, gentle):
        super().__init__(seed, root)
        self.gentle = gentle
        paths = everything(root)[:-1]
        self.dirs = [root] + [p for p in paths if os.path.isdir(p) and not os.path.islink(p)]
        self.files = [p for p in paths if os.path.isfile(p) and not os.path.islink(p)]
        self.modes = {}

    def leaf(self, path):
        self.files = [p for p in self.files if os.path.isfile(p) and not os.path.islink(p)]
        self.dirs = [p for p in self.dirs if os.path.isdir(p) and not os.path.islink(p)]
        super().leaf(path)

    def open_up(self, path, mode):
        st = os.lstat(path)
        if not self.privileged and not stat.S_ISLNK(st.st_mode) and st.st_mode & mode != mode:
            self.modes.setdefault(path, stat.S_IMODE(st.st_mode))
            os.chmod(path, stat.S_IMODE(st.st_mode) | mode)

    def remove(self, path):
        for p in everything(path):
            if os.path.isdir(p) and not os.path.islink(p):
                self.open_up(p, 0o700)
        for p in everything(path):
            self.open_up(os.path.dirname(p), 0o700)
            os.rmdir(p) if os.path.isdir(p) and not os.path.islink(p) else os.unlink(p)

    def rewrite(self, path):
        """Grow, shrink or change in place; with another size now and then with the old time of modification. (What keeps
        both is, with -a, not sent again: see -p in rcp(1).)"""
        rng, st = self.rng, os.lstat(path)
        self.open_up(path, 0o600)
        with open(path, 'r+b') as f:
            how = rng.randrange(4)
            if how == 0:
                f.seek(0, 2)
                f.write(content(rng, rng.choice([1, 4096, MIB])))
            elif how == 1:
                f.truncate(rng.randrange(st.st_size + 1))
            elif st.st_size:
                f.seek(rng.randrange(st.st_size))
                f.write(b'changed'[:st.st_size])
        if rng.random() < 0.3 and os.lstat(path).st_size != st.st_size:
            os.utime(path, ns=(st.st_mtime_ns, st.st_mtime_ns))

    def bare(self, path):
        self.open_up(path, 0o600)
        for name in os.listxattr(os.fsencode(path), follow_symlinks=False):
            if name.startswith('user.') or name in (ACCESS, DEFAULT):
                quietly(os.removexattr, path, name, follow_symlinks=False)

    def replace(self, path):
        self.open_up(os.path.dirname(path), 0o700)
        self.remove(path)
        kind = self.rng.randrange(4)
        if kind == 0:
            os.mkdir(path, 0o700)
            self.dirs.append(path)
            self.leaf(self.free(path))
        elif kind == 1:
            self.dirs = [d for d in self.dirs if os.path.isdir(d)]
            self.link(path)
        else:
            self.leaf(path)

    def one(self, path):
        kind = self.rng.random()
        regular = stat.S_ISREG(os.lstat(path).st_mode)
        if regular and kind < 0.45:
            self.rewrite(path)
        elif kind < 0.55:
            self.dress(path)
        elif kind < 0.65 and not os.path.islink(path):
            self.bare(path)
        elif self.gentle:
            self.dress(path)
        elif kind < 0.8:
            self.replace(path)
        elif kind < 0.9:
            self.remove(path)
        else:
            where = os.path.dirname(path)
            self.open_up(where, 0o700)
            self.leaf(self.free(where))

    def mutate(self):
        paths = everything(self.root)[:-1]
        for path in self.rng.sample(paths, min(len(paths), self.rng.randrange(4, 20))):
            if os.path.lexists(path):
                self.one(path)
        for path, mode in self.modes.items():
            if os.path.lexists(path) and not os.path.islink(path):
                os.chmod(path, mode | (0o500 if os.path.isdir(path) else 0o400))


# ---- what is there ----

KINDS = {stat.S_IFREG: 'file', stat.S_IFDIR: 'dir', stat.S_IFLNK: 'link', stat.S_IFIFO: 'fifo', stat.S_IFSOCK: 'sock', stat.S_IFCHR: 'chr',
         stat.S_IFBLK: 'blk'}


def digest(path):
    h = hashlib.blake2b(digest_size=16)
    with open(path, 'rb') as f:
        while block := f.read(MIB):
            h.update(block)
    return h.hexdigest()


def attributes_of(path):
    out = {}
    for name in os.listxattr(path, follow_symlinks=False):
        if name.startswith(COPIED):
            out[os.fsencode(name).decode('latin-1')] = os.getxattr(path, name, follow_symlinks=False).hex()
    return out


def describe(path):
    st = os.lstat(path)
    kind = KINDS[stat.S_IFMT(st.st_mode)]
    e = {'kind': kind, 'mode': stat.S_IMODE(st.st_mode), 'mtime': st.st_mtime_ns, 'uid': st.st_uid, 'gid': st.st_gid,
         'xattrs': attributes_of(path), 'inode': [st.st_dev, st.st_ino], 'names': st.st_nlink if kind != 'dir' else 1}
    if kind == 'file':
        e.update(size=st.st_size, digest=digest(path), blocks=st.st_blocks)
    elif kind == 'link':
        e.update(to=os.readlink(path).decode('latin-1'))
        del e['mode']
        e['leads'] = KINDS[stat.S_IFMT(os.stat(path).st_mode)] if os.path.exists(path) else None
    elif kind in ('chr', 'blk'):
        e.update(rdev=st.st_rdev)
    return e


def snapshot(root):
    """Path below root ('' is root itself) to what is there; {} where there is nothing."""
    cut = len(root) + 1
    if not os.path.lexists(root):
        return {}
    return {p[cut:].decode('latin-1'): describe(p) for p in everything(root)}


# ---- two of them ----

TOLD = ['kind', 'size', 'digest', 'mode', 'mtime', 'uid', 'gid', 'to', 'rdev', 'xattrs']


def differ(want, have, keys=TOLD):
    return ['%s is %r, not %r' % (k, have.get(k), want.get(k)) for k in keys if want.get(k) != have.get(k)]


def above(path):
    while '/' in path:
        path = path.rsplit('/', 1)[0]
        yield path


def refused(old, new):
    """What a run over old must refuse of new, and what it may: a target that is of another type."""
    must, may = set(), set()
    names = {}
    for path in sorted(new, key=lambda p: p.split('/')): # as rcp walks
        if new[path]['names'] > 1:
            names.setdefault(tuple(new[path]['inode']), []).append(path)
    links = {path for group in names.values() for path in group[1:]}
    for path in sorted(new, key=lambda p: p.encode('latin-1')):
        kind, was = 'link' if path in links else new[path]['kind'], old.get(path, {})
        stays = {'dir': ('file', 'fifo', 'sock', 'chr', 'blk'), 'file': ('dir', 'fifo', 'sock', 'chr', 'blk')}.get(kind, ('dir',))
        if is_own(path) or was.get('kind') in stays or any(a in must for a in above(path)):
            must.add(path)
        elif kind == 'file' and was.get('kind') == 'link':
            may.add(path) # what it leads to may change in the same run
        elif any(a in may for a in above(path)):
            may.add(path)
    # The other names of what failed; the first one of them that is not under a refused directory.
    for group in names.values():
        if group[0] in must:
            must.update(group)
        elif group[0] in may:
            may.update(p for p in group if p not in must)
    return must, may


def compare_links(source, target, skip):
    to, fro, out = {}, {}, []
    for path, e in source.items():
        if path in skip or path not in target or e['kind'] == 'dir':
            continue
        a, b = tuple(e['inode']), tuple(target[path]['inode'])
        if to.setdefault(a, (b, path))[0] != b:
            out.append('%r is not the same file as %r' % (path, to[a][1]))
        if fro.setdefault(b, (a, path))[0] != a:
            out.append('%r is the same file as %r' % (path, fro[b][1]))
    return out


def too_large(want, have):
    return want['kind'] == have['kind'] == 'file' and have['blocks'] > want['blocks'] + 128 + want['size'] // MIB


def stayed(path, was, have):
    if not was or not have:
        return ['%r came, went or was replaced, and should have been refused' % path] if was or have else []
    words = differ(was, have, [k for k in TOLD if k != 'mtime' or was['kind'] != 'dir'])
    return ['%r is not as it was: %s' % (path, '; '.join(words))] if words else []


def by_other_names(path, old, new):
    """What a file of the target's may become by the copy of another name that it has there: where that is
    complete already, and only what -a keeps of it is not, the file gets that under all of its names."""
    if path not in old or old[path]['kind'] == 'dir' or old[path]['names'] < 2:
        return []
    return [new[p] for p, e in old.items() if p in new and p != path and e['inode'] == old[path]['inode']]


def compare(source, target, old, must=(), may=()):
    """Every difference, in words. old: what the target was before; its other entries stay as they were."""
    out = []
    for path, want in source.items():
        have = target.get(path)
        if path in must:
            out += stayed(path, old.get(path), have)
        elif path in may:
            if have and old.get(path) and differ(want, have) and differ(old[path], have, ['kind', 'digest', 'to']):
                out.append('%r is neither old nor new: %s' % (path, '; '.join(differ(want, have))))
            elif have and path not in old and differ(want, have, ['kind', 'digest', 'to']):
                out.append('%r was not there and is not the new one: %s' % (path, '; '.join(differ(want, have))))
        elif not have:
            out.append('%r is missing' % path)
        elif differ(want, have):
            out.append('%r: %s' % (path, '; '.join(differ(want, have))))
        elif too_large(want, have):
            out.append('%r: takes %d blocks, and %d at the source' % (path, have['blocks'], want['blocks']))
    for path, have in target.items():
        if path in source:
            continue
        if not old.get(path):
            out.append('%r is in the target only' % path)
        elif all(differ(v, have) for v in by_other_names(path, old, source)):
            out += stayed(path, old[path], have)
    return out + compare_links(source, target, set(must) | set(may))


def changed(before, after):
    """A copy must leave its source as it is, holes and all."""
    keys = TOLD + ['inode', 'names', 'blocks']
    for p in before.keys() & after.keys():
        # The file system's own blocks come and go with its writing back.
        was, now = before[p].get('blocks'), after[p].get('blocks')
        if was is not None and now is not None and abs(was - now) <= 64:
            after[p]['blocks'] = was
    return ['the source was changed: %r: %s' % (p, '; '.join(differ(before.get(p, {}), after.get(p, {}), keys)))
            for p in sorted(before.keys() | after.keys()) if differ(before.get(p, {}), after.get(p, {}), keys)]


def make_file(seed, size, path):
    """One large file; by odd seeds with holes."""
    rng = random.Random(seed)
    with open(path, 'wb') as f:
        for at in range(0, size, MIB):
            if seed % 2 == 0 or rng.random() < 0.7:
                f.seek(at)
                f.write(content(rng, min(MIB, size - at)))
        f.truncate(size)
    os.utime(path, ns=(1500000000 * 10**9 + seed,) * 2)


# ---- what a cut off copy left ----

def claimed(journal):
    """Bytes that a journal speaks of (its format is in src/file/journal.c)."""
    try:
        with open(journal, 'rb') as f:
            data = f.read()
    except FileNotFoundError:
        return 0
    if len(data) < 64 or zlib.crc32(data[:60]) != struct.unpack('>I', data[60:64])[0]:
        return 0
    size, chunk, seen = *struct.unpack('>Q', data[24:32]), *struct.unpack('>I', data[44:48]), set()
    for at in range(64, len(data) - 15, 16):
        index, _, check = struct.unpack('>QII', data[at:at + 16])
        if zlib.crc32(data[at:at + 12], zlib.crc32(data[:60])) != check:
            break
        seen.add(index)
    return sum(min(chunk, size - i * chunk) for i in seen)


def finals(root):
    """Content of each file that has its name now, while a copy may still run: each is opened once."""
    out, cut = {}, len(root) + 1
    for folder, _, names in os.walk(root):
        for name in names:
            path = folder + b'/' + name
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    out[path[cut:].decode('latin-1')] = digest(path)
            except FileNotFoundError:
                pass
    return out


def main(args):
    what = args[0]
    os.umask(0o022)
    if what in ('make', 'target'):
        Maker(int(args[1]), os.fsencode(args[2])).make(what == 'make')
    elif what in ('mutate', 'touch'):
        Mutator(int(args[1]), os.fsencode(args[2]), what == 'touch').mutate()
    elif what == 'file':
        make_file(int(args[1]), int(args[2]), os.fsencode(args[3]))
    elif what == 'claimed':
        print(claimed(os.fsencode(args[1])))
    elif what == 'snapshot':
        json.dump(snapshot(os.fsencode(args[1])), sys.stdout)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv[1:])
