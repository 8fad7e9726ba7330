"""What can fail: the names in `wrapped`, and the places in the program that call them."""
import collections
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FOREIGN = 1 << 48 # a place in OpenSSL: no address

How = collections.namedtuple('How', 'word survives quiet')
# One function called at one place, which was seen `count` times; `name` is stable as long as the source is.
Site = collections.namedtuple('Site', 'call place count name')


def wrapped():
    """NAME: the ways in which it fails."""
    table = {}
    with open(os.path.join(HERE, 'wrapped'), encoding='ascii') as f:
        for line in f:
            words = line.split()
            if words and words[0] not in '#-':
                table[words[0]] = [How(w.rstrip('!~'), w.endswith('!'), w.endswith('~')) for w in words[1:]]
    return table


def exempt():
    """NAME@FILE and NAME@FILE:HOW that are left alone."""
    with open(os.path.join(HERE, 'wrapped'), encoding='ascii') as f:
        return {line.split()[1] for line in f if line.startswith('- ')}


def lines_of(program, places):
    """address: "file.c:line", as addr2line has it. What has no line is a sanitizer's own."""
    names = {p: '0x%x' % p for p in places if p >= FOREIGN}
    own = sorted(p for p in places if p < FOREIGN)
    try:
        # The call is before its return address.
        out = subprocess.run(['addr2line', '-e', program] + ['0x%x' % (p - 1) for p in own], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, timeout=300, check=True).stdout.decode().splitlines()
    except (OSError, subprocess.SubprocessError):
        return {p: '0x%x' % p for p in places}
    for place, line in zip(own, out):
        line = line.split(' ')[0]
        if not line.endswith((':?', ':0')):
            names[place] = os.path.basename(line)
    return names


class Sites:
    """The places that counting runs saw, by their names."""

    def __init__(self, program):
        self.program, self.names, self.exempt = program, {}, exempt()

    def left_alone(self, call, line, how=None):
        place = '%s@%s' % (call, line.split(':')[0])
        return (place + ':' + how if how else place) in self.exempt

    def learn(self, counts):
        """Names for all; several of one call on one line have a number after them, by address."""
        keys = sorted(set(self.names) | set(counts))
        lines = lines_of(self.program, {place for _, place in keys})
        seen = collections.Counter()
        for call, place in keys:
            line = lines.get(place)
            if not line or self.left_alone(call, line):
                continue
            seen[call, line] += 1
            self.names[call, place] = line if seen[call, line] == 1 else '%s.%d' % (line, seen[call, line])

    def of(self, counts):
        return [Site(call, place, n, '%s@%s' % (call, self.names[call, place]))
                for (call, place), n in sorted(counts.items()) if (call, place) in self.names]


def read_counts(path):
    counts = collections.Counter()
    if os.path.exists(path):
        with open(path, encoding='ascii') as f:
            for line in f:
                _, call, place, n = line.split()
                counts[call, int(place, 16)] += int(n)
    return counts


def numbers(count, most):
    """Which of a place's calls fail: the first ones, and the last."""
    few = list(range(1, min(count, most) + 1))
    return few + ([count] if count > most else [])

