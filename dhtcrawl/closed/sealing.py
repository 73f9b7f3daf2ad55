"""Datagrams of a closed swarm, sealed and opened. Pure: chance comes from the caller.

    10 or 11 │ key id 1 │ sender 20 │ session 16 │ counter 8 │ ChaCha20-Poly1305 of the datagram, tag 16

    key              HKDF-Expand-SHA256(the secret's `dgram`, sender ‖ session)
    nonce            0000 0000 ‖ counter
    associated data  all before the ciphertext ‖ receiver; with 11, where the sender does not know it, 20 zeros

A session is drawn at random at each start, so that no counter is stored and no
nonce ever comes twice under a key. What does not open is None, whatever was
wrong with it, and changes nothing.

A session is *proven* once the shell says so: it has answered a question of ours
that is newer than any recording. Only of proven sessions is anything kept: the
key, and which counters have come. At most `SESSIONS_MAX` are kept, and the one
not heard for longest goes first; it is then as unknown as any.

Whoever has the secret can seal in another's name, with a counter far ahead or
the next thousand. So what is *seen*, by its counter, opens, too, for the shell to
look at: an answer to what we asked after all that came has a higher counter than
all of that, or not all was its sender's.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dhtcrawl.closed.replay import ReplayWindow
from dhtcrawl.closed.secret import Ring, SwarmKeys
from dhtcrawl.keyspace import KEY_BYTES

SESSION_BYTES: Final = 16
SESSIONS_MAX: Final = 4096
_TAG_BYTES: Final = 16
_WHO = slice(2, 2 + KEY_BYTES + SESSION_BYTES)
_COUNTER = slice(_WHO.stop, _WHO.stop + 8)
_HEAD_BYTES: Final = _COUNTER.stop
SEAL_BYTES: Final = _HEAD_BYTES + _TAG_BYTES  # 62: what a sealed datagram is longer by
_TO_ONE, _TO_ANY = 0x10, 0x11
_UNKNOWN: Final = bytes(KEY_BYTES)
_NONCE_HEAD: Final = bytes(4)


class OpenedDatagram(NamedTuple):
    """A datagram that a holder of a secret of ours sealed, under a session that is `proven` or not."""

    sender: bytes  # the node id that it names; who holds the secret may name any
    session: bytes
    counter: int
    secret: str  # the name of the secret
    proven: bool
    datagram: bytes
    seen: bool = False  # its session is proven, but its counter has come, or is behind all that are remembered


class _Session:
    """One that is proven."""

    __slots__ = ("aeads", "noted_at", "secret", "session", "window")

    def __init__(self, opened: OpenedDatagram, sealed: int) -> None:
        self.session = opened.session
        self.secret = opened.secret
        self.window = ReplayWindow(opened.counter)
        self.noted_at = sealed  # how many datagrams we had sealed when the last one of it came that was not seen
        self.aeads: dict[str, ChaCha20Poly1305] = {}  # by the secret's name

    def note(self, counter: int, secret: str, sealed: int) -> None:
        """A datagram of it has come whose counter is not seen."""
        self.window.note(counter)
        self.noted_at = sealed
        self.secret = secret


class Sealer:
    """One node's end: it seals under its own session, and opens what comes under others'."""

    def __init__(self, ring: Ring, own_id: bytes, session: bytes) -> None:
        assert len(own_id) == KEY_BYTES
        assert len(session) == SESSION_BYTES
        self._own_id = own_id
        self._who = own_id + session
        self._counter = 0
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # by sender: a node has one, its newest
        self.use(ring)

    def use(self, ring: Ring) -> None:
        """From here on the first of these secrets is used and all are accepted. Sessions stay what they are."""
        self._by_id: dict[int, list[SwarmKeys]] = {}
        for keys in ring.keys:
            self._by_id.setdefault(keys.key_id, []).append(keys)
        self.accepted = tuple(keys.name for keys in ring.keys)  # the names of the secrets
        self._banned = ring.banned
        self._aead = _aead(ring.used, self._who)
        self._heads = tuple(bytes((kind, ring.used.key_id)) + self._who for kind in (_TO_ONE, _TO_ANY))
        for session in self._sessions.values():
            session.aeads.clear()

    @property
    def used(self) -> str:
        """The name of the secret by which this node seals."""
        return self.accepted[0]

    @property
    def sealed(self) -> int:
        """How many datagrams were sealed: the counter of the last one."""
        return self._counter

    def seal(self, datagram: bytes, receiver: bytes | None) -> bytes:
        """A datagram for the node `receiver`, or for whichever node has the address that it goes to."""
        self._counter += 1
        counter = self._counter.to_bytes(8, "big")
        head = self._heads[receiver is None] + counter
        return head + self._aead.encrypt(_NONCE_HEAD + counter, datagram, head + (receiver or _UNKNOWN))

    def open(self, sealed: bytes) -> OpenedDatagram | None:
        """What is in a datagram; None for one that is not from this swarm, or is not for us."""
        if len(sealed) < SEAL_BYTES or sealed[0] not in (_TO_ONE, _TO_ANY):
            return None
        candidates = self._by_id.get(sealed[1])
        if candidates is None:
            return None
        who = sealed[_WHO]
        sender, session_id = who[:KEY_BYTES], who[KEY_BYTES:]
        session = self._known(sender, session_id)
        counter = int.from_bytes(sealed[_COUNTER], "big")
        seen = session is not None and not session.window.is_new(counter)
        if sender == self._own_id or sender in self._banned:
            return None
        head = sealed[:_HEAD_BYTES]
        authenticated = head + (self._own_id if sealed[0] == _TO_ONE else _UNKNOWN)
        for keys in candidates:
            aead = session.aeads.get(keys.name) if session is not None else None
            if aead is None:
                aead = _aead(keys, who)
            try:
                datagram = aead.decrypt(_NONCE_HEAD + head[_COUNTER], sealed[_HEAD_BYTES:], authenticated)
            except InvalidTag:
                continue
            if session is not None:
                session.aeads[keys.name] = aead
                if not seen:
                    session.note(counter, keys.name, self._counter)
                    self._sessions.move_to_end(sender)
            proven = session is not None and not seen
            return OpenedDatagram(sender, session_id, counter, keys.name, proven, datagram, seen)
        return None

    def is_overtaken(self, opened: OpenedDatagram, question: int) -> bool:
        """Whether a datagram that is seen shows that another has sealed in its sender's name.

        It answers the question that we sealed under this counter of ours. Its sender sealed it after that, so with a
        higher counter than any that had come from it until then. Where one has come since, it may be one of those
        that its sender sealed later, which would be a recording once the session goes on from here.
        """
        session = self._known(opened.sender, opened.session)
        return session is not None and session.noted_at < question

    def prove(self, opened: OpenedDatagram) -> None:
        """Hear a session from here on, as its sender's: this datagram of it answered a question of ours."""
        self._sessions[opened.sender] = _Session(opened, self._counter)
        self._sessions.move_to_end(opened.sender)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def _known(self, sender: bytes, session_id: bytes) -> _Session | None:
        session = self._sessions.get(sender)
        return session if session is not None and session.session == session_id else None

    def secrets_used(self) -> dict[bytes, str]:
        """By which secret each node sealed what came from it last, by its name."""
        return {sender: session.secret for sender, session in self._sessions.items()}


def _aead(keys: SwarmKeys, who: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(HKDFExpand(hashes.SHA256(), 32, who).derive(keys.datagram_key))
