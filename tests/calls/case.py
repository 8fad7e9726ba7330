"""One copy with one call failing, and what must hold then."""
import os
import re
import time

from world import look

STATUSES = (0, 1, 3, 4, 5, 6)
NOT_SAID = re.compile(r'Success|Error 0|unknown reason|\(null\)|: $|^rcp: *$')
RESUME = 'run the same command again to go on with what was kept'
DROPPED = r'closed the connection|refused by the other side|the other end is busy|Connection reset by peer|the remote command ended (?:early|with status)'
PARTIAL = re.compile(r'^\..*\.rcp-(part|journal|make)$|^\.[0-9a-f]{8}\.rcp-done$|^\..*\.rcp-new$')


class Plan:
    """A copy: its words, which ends there are, what is at the target before."""

    def __init__(self, name, options, way, ends=('here', 'there'), archive=True, faults=None):
        self.name, self.options, self.way, self.ends, self.archive = name, options, way, ends, archive
        self.faults = faults # what made the state it goes on from
        self.prepared = None

    def words(self, w):
        far = {'up': ('%s', 'box:%s'), 'down': ('box:%s', '%s'), 'local': ('%s', '%s')}[self.way]
        return self.options + [far[0] % w.src, far[1] % w.dst]


ARCHIVE = ['-a', '--retries=0', '--chunk-size=512K']
PLANS = [
    Plan('local', ['-a', '--chunk-size=512K'], 'local', ends=('here',)),
    Plan('up-tcp', ARCHIVE + ['--transport=tcp'], 'up'),
    Plan('down-tcp', ARCHIVE + ['--transport=tcp'], 'down'),
    Plan('up-ssh', ARCHIVE + ['--transport=ssh'], 'up'),
    Plan('down-ssh', ARCHIVE + ['--transport=ssh'], 'down'),
    Plan('verify', ARCHIVE + ['--transport=tcp', '--verify', '--fsync'], 'up'),
    Plan('local-verify', ['-a', '--verify', '--fsync', '--chunk-size=512K'], 'local', ends=('here',)),
    Plan('plain', ['-r', '--retries=0', '--chunk-size=512K'], 'up', archive=False),
    Plan('resume', ARCHIVE + ['--transport=tcp'], 'up', faults='pwrite64'),
]


class Case:
    """A plan, the end, the site, which of its calls (`on`: all from there on), and how it fails."""

    def __init__(self, plan, end, site, n, on, how):
        self.plan, self.end, self.site, self.n, self.on, self.how = plan, end, site, n, on, how

    def name(self):
        return '%s/%s/%s:%d%s:%s' % (self.plan.name, self.end, self.site.name, self.n, '+' if self.on else '', self.how.word)

    def rule(self):
        return '%s@0x%x:%d%s:%s' % (self.site.call, self.site.place, self.n, '+' if self.on else '', self.how.word)


def differences(want, have, archive):
    """What of the data is not the same, what of the rest."""
    data, rest = [], []
    for name in sorted(set(want) | set(have)):
        if name not in have:
            data.append('%s is missing' % name)
        elif name not in want:
            data.append('%s should not be there' % name)
        elif want[name][0] != have[name][0]:
            data.append('%s is not the same' % name)
        elif archive:
            rest += ['%s: %s' % (name, k) for k in want[name][1] if want[name][1][k] != have[name][1].get(k)]
    return data, rest


def strays(have, want, final):
    """Names that nobody expects; after the end of all no partial ones either."""
    return [n for n in have if n not in want and (final or not PARTIAL.match(os.path.basename(n)))]


class Judge:
    def __init__(self, w, want, followed):
        self.w, self.want, self.followed = w, want, followed # followed: the tree as a copy without -a has it

    def tree(self, plan):
        return self.want if plan.archive else self.followed

    def target(self):
        top = self.w.dst + '/' + os.path.basename(self.w.src)
        have = look(top) if os.path.isdir(top) else {}
        beside = [n for n in os.listdir(self.w.dst) if n != os.path.basename(self.w.src)]
        return have, beside

    def run(self, case, out):
        w, plan = self.w, case.plan
        w.clear(plan.prepared)
        seam = 'report=%s/report-%%s fail=%s' % (w.dir, case.rule())
        plainly = 'report=%s/report-%%s' % w.dir
        how = {end: (seam if end == case.end else plainly) % end for end in ('here', 'there')}
        r = w.rcp(plan.words(w), how['here'], how['there'])
        faults = self.ends(case, r)
        out['hit'] = 'hit ' in w.text('report-' + case.end)
        out['status'], out['err'] = r.status, r.err
        out['report'] = w.text('report-' + case.end)
        faults += self.process(case, r)
        if out['hit']:
            faults += self.status(case, r) + self.words(case, r)
        elif r.status != 0:
            faults.append('status %s, and nothing failed' % r.status)
        have, beside = self.target()
        faults += self.disk(case, r, have, beside)
        if r.status != 0:
            faults += self.rerun(plan)
        return faults

    def ends(self, case, r):
        """Both have ended, the other end soon after this one."""
        w = self.w
        end = time.monotonic() + 15
        want = len(case.plan.ends) == 2 and r.status != 'no end'
        while want and os.path.exists(w.dir + '/there') and not w.text('there.rc') and time.monotonic() < end:
            time.sleep(0.02)
        late = [] if r.status == 'no end' else w.stay()
        faults = ['it does not end'] if r.status == 'no end' else []
        if r.status == 'no end':
            w.stay()
        if late:
            faults.append('processes are left: %s' % late)
        return faults

    def process(self, case, r):
        w, faults = self.w, []
        if w.sanitizer():
            faults.append('sanitizer: ' + summary_of(w.sanitizer()))
        for end in case.plan.ends:
            for line in w.text('report-' + end).splitlines():
                if line.startswith(('fd ', 'close ')):
                    faults.append('%s: %s' % (end, 'left open: ' + line[3:] if line.startswith('fd') else 'closed twice: ' + line))
        if r.status != 'no end' and r.status not in STATUSES:
            faults.append('status %s' % r.status)
        rc = w.text('there.rc').split()
        if 'there' in case.plan.ends and rc and int(rc[-1]) not in STATUSES:
            faults.append('status %s of the server' % rc[-1])
        return faults

    def status(self, case, r):
        faults = []
        if case.how.survives and not case.on and r.status != 0:
            faults.append('status %s, and nobody should have noticed' % r.status)
        if r.status == 0 and 'there' in case.plan.ends:
            rc = self.w.text('there.rc').split()
            # A source that lost the sink's last words can't know that all went well.
            unsure = ('5', '6') if case.plan.way == 'down' else ()
            if rc and rc[-1] != '0' and rc[-1] not in unsure:
                faults.append('status 0, but %s of the server' % rc[-1])
        # Where standard output can't be written there is no summary, and that is told.
        if r.status != 'no end' and r.started and 'standard output' not in r.err and not self.mute(case) and (not r.summary or r.summary['exit_code'] != r.status):
            faults.append('the summary says %s, the status is %s' % (r.summary and r.summary['exit_code'], r.status))
        return faults

    def words(self, case, r):
        faults = ['not said: ' + x for x in r.lines if NOT_SAID.search(x)]
        told = [x for x in r.lines if x.startswith('rcp: ') and not x.startswith(('rcp: warning: ', 'rcp: link lost')) and 'no TCP port: ' not in x and RESUME not in x]
        told = [x for x in told if not re.match(r'rcp: (\d+ errors:|  )', x)]
        if r.status == 0 and r.summary and r.summary['errors']:
            faults.append('status 0, and errors told')
        if r.status in (0, 'no end'):
            return faults
        if self.mute(case):
            return faults
        if not told:
            faults.append('status %s without a word' % r.status)
        if len(set(told)) != len(told) and not case.on: # one that always fails may meet a directory's end, too
            faults.append('a message is told twice')
        if len(told) > (1 if r.status in (3, 6) else 2 * len(self.want)):
            faults.append('%d messages' % len(told))
        # A connection that was refused or dropped in the making can't say why.
        # EPIPE means that the peer is gone, and is told so.
        dropped = (case.end == 'there' or case.how.word == 'EPIPE') and r.status in (3, 6) and re.search(DROPPED, r.err)
        if not dropped and not case.how.quiet and not any(self.tells(case, x) for x in r.lines):
            faults.append('the reason is not in the message')
        return faults

    @staticmethod
    def mute(case):
        """Nothing can be said any more, by either way."""
        return case.on and case.site.name.startswith(('write@print.c', 'realloc@bytes.c'))

    @staticmethod
    def tells(case, line):
        import errno
        text = os.strerror(getattr(errno, case.how.word)) if hasattr(errno, case.how.word) else None
        return text is None or text in line

    def disk(self, case, r, have, beside):
        faults = []
        want = self.tree(case.plan)
        # Where they can't be removed they stay: none of them harms, and all are in rcp(1).
        final = r.status == 0 and not (case.site and case.site.call == 'unlinkat')
        for n in strays(have, want, final):
            faults.append('left behind: ' + n)
        for n in beside:
            if final or not PARTIAL.match(n):
                faults.append('left behind, beside: ' + n)
        if r.status == 0:
            data, rest = differences(want, have, case.plan.archive)
            faults += ['status 0, but ' + x for x in data if 'should not be' not in x]
            if rest and 'warning: ' not in r.err:
                faults.append('status 0, but not told: ' + ', '.join(rest))
        else:
            for n, (data, _) in have.items(): # no target has half of a file
                if n in want and data != want[n][0]:
                    faults.append('half of it: ' + n)
        return faults

    def rerun(self, plan):
        w = self.w
        r = w.rcp(plan.words(w))
        have, beside = self.target()
        data, rest = differences(self.tree(plan), have, plan.archive)
        faults = ['rerun: ' + x for x in data + rest + ['left behind: ' + n for n in beside]]
        if r.status != 0:
            faults.append('rerun: status %s: %s' % (r.status, r.err[-300:].replace('\n', ' | ')))
        return faults


def summary_of(text):
    lines = [x for x in text.splitlines() if re.search(r'ERROR|SUMMARY|runtime error|leak of|^    #[0-9]+ .* in (?!__interceptor|malloc|calloc|realloc|__wrap)', x)]
    return ' / '.join(x.strip()[:160] for x in lines[:12])
