#!/usr/bin/env python3
"""
Stands between the two ends of a copy on loopback and does one thing to the data connections.

usage: proxy.py DIR up|down DEED [FRAME]

DIR/proxy.port   where it listens, written when it does
DIR/proxy.to     the port that is meant, read at each connection (e2e-preload writes it there)
DIR/proxy.wire   all bytes that passed, as they came in
DIR/proxy.nonces a line for each chunk's header that passed: control connection, generation, sequence
DIR/proxy.done   there once the deed was done

A data connection begins with "rcpD"; see rcp-protocol(7). FRAME: at which chunk, counted from 0 over all of them.
"""
import os
import socket
import struct
import sys
import threading
import zlib

DIR, WAY, DEED = sys.argv[1:4]
AT = int(sys.argv[4]) if len(sys.argv) > 4 else 3
PREAMBLE, ANSWER, PREFIX, HEADER = 56, 32, 8, 64

lock = threading.Lock()
state = {'frames': 0, 'controls': 0, 'kept': None}
wire = open(os.path.join(DIR, 'proxy.wire'), 'wb')
nonces = open(os.path.join(DIR, 'proxy.nonces'), 'w')


def done():
    open(os.path.join(DIR, 'proxy.done'), 'w').close()


class Over(Exception):
    pass


class Way:
    """One direction of one connection."""

    def __init__(self, conn, source, sink):
        self.conn, self.source, self.sink, self.have = conn, source, sink, b''

    def some(self):
        data = self.source.recv(1 << 18)
        if not data:
            raise Over
        with lock:
            wire.write(data)
            wire.flush()
        return data

    def get(self, n):
        parts, have = [self.have], len(self.have)
        while have < n:
            parts.append(self.some())
            have += len(parts[-1])
        data = b''.join(parts)
        self.have = data[n:]
        return data[:n]

    def put(self, data):
        self.sink.sendall(data)

    def pass_all(self):
        self.put(self.have)
        while True:
            self.put(self.some())

    def frame(self):
        prefix = self.get(PREFIX)
        return [prefix, self.get(HEADER), self.get(struct.unpack('>II', prefix)[1])]

    def chunks(self):
        while True:
            f = self.frame()
            with lock:
                n = state['frames']
                state['frames'] += 1
                nonces.write('%d %d %d\n' % (state['controls'], *struct.unpack('>I', f[1][8:12]),
                                             *struct.unpack('>Q', f[1][32:40])))
                nonces.flush()
                out = deeds[DEED](self, f, n)
            self.put(out)


def whole(f):
    return b''.join(f)


def flipped(data, at, bit=1):
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1:]


def forged(header, at, bit):
    """With the header's own CRC made right."""
    header = flipped(header, at, bit)[:60]
    return header + struct.pack('>I', zlib.crc32(header))


def at_one(change):
    def deed(way, f, n):
        if n == AT:
            done()
            return change(way, f)
        return whole(f)
    return deed


def at_all(change):
    def deed(way, f, n):
        done()
        return change(way, f)
    return deed


def payload_flip(way, f):
    return f[0] + f[1] + flipped(f[2], len(f[2]) // 2)


def header_forge(at, bit):
    return lambda way, f: f[0] + forged(f[1], at, bit) + f[2]


def cut(way, f):
    way.put(whole(f)[:len(f[2]) // 2])
    way.conn.close()
    raise Over


def replay(way, f, n):
    if n == AT:
        state['kept'] = f
    if n == AT + 3:
        done()
        return f[0][:4] + state['kept'][0][4:] + state['kept'][1] + state['kept'][2]
    return whole(f)


def reorder(way, f, n):
    if n == AT:
        state['kept'] = f
        return b''
    kept, state['kept'] = state['kept'], None
    if kept:
        done()
        return whole(f) + whole(kept)
    return whole(f)


def credit(way, f):
    way.conn.backwards(struct.pack('>I', 7 << 16 | struct.unpack('>I', f[1][8:12])[0]) * 2)
    return whole(f)


deeds = {
    'nothing': lambda way, f, n: whole(f),
    'flip': at_one(payload_flip),
    'flip-all': at_all(payload_flip),
    'flip-header': at_one(lambda way, f: f[0] + flipped(f[1], 20) + f[2]),
    'flip-prefix': at_one(lambda way, f: flipped(f[0], 0) + f[1] + f[2]),
    'forge-offset': at_one(header_forge(21, 0x10)),
    'forge-entry-all': at_all(header_forge(15, 1)),
    'forge-crc': at_one(header_forge(28, 1)),
    'unseal': at_one(header_forge(7, 2)),
    'drop-bytes': at_one(lambda way, f: whole(f)[:-100]),
    'add-bytes': at_one(lambda way, f: whole(f) + b'x' * 100),
    'drop': at_one(lambda way, f: b''),
    'twice': at_one(lambda way, f: whole(f) * 2),
    'replay': replay,
    'reorder': reorder,
    'cut': at_one(cut),
    'credit': at_one(credit),
}


class Conn:
    def __init__(self, client):
        with open(os.path.join(DIR, 'proxy.to')) as f:
            port = int(f.read())
        self.client = client
        self.server = socket.create_connection(('127.0.0.1', port), 10)
        for s in client, self.server:
            s.settimeout(120)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.up, self.down = Way(self, client, self.server), Way(self, self.server, client)

    def close(self):
        for s in self.client, self.server:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def backwards(self, data):
        (self.down if WAY == 'up' else self.up).put(data)

    def begin(self):
        """Is it a data connection? Then its greeting is passed here, and the chunks' way gets at them."""
        first = self.up.get(4)
        if first != b'rcpD':
            with lock:
                state['controls'] += 1
            self.up.put(first)
            return False
        self.up.put(first + self.up.get(PREAMBLE - 4))
        self.down.put(self.down.get(ANSWER))
        return True

    def end_of(self, way, passes):
        try:
            passes()
        except (Over, OSError):
            pass
        try:
            way.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def run(self):
        try:
            data = self.begin()
        except (Over, OSError):
            self.close()
            return
        chunks = (self.up if WAY == 'up' else self.down) if data else None
        threads = [threading.Thread(target=self.end_of, daemon=True,
                                    args=(w, w.chunks if w is chunks else w.pass_all))
                   for w in (self.up, self.down)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.client.close()
        self.server.close()


def main():
    listener = socket.create_server(('127.0.0.1', 0))
    with open(os.path.join(DIR, 'proxy.port.new'), 'w') as f:
        f.write('%d\n' % listener.getsockname()[1])
    os.rename(os.path.join(DIR, 'proxy.port.new'), os.path.join(DIR, 'proxy.port'))
    while True:
        client, _ = listener.accept()
        threading.Thread(target=lambda c=client: Conn(c).run(), daemon=True).start()


main()
