"""Attacks on the wire against running nodes, in both modes: forged, broken, replayed and
oversized frames. The attacker is written from docs/PROTOCOL.md (attacker.py). Without the
secret it achieves nothing; with it, frames that break a rule are dropped all the same. After
each attack the victim still serves, holds what it held before, and has counted what it
dropped (attack_fleet.Attacked.unharmed)."""

import itertools
import struct
import time

import pytest
from attack_fleet import Attacked, Datagrams
from attacker import (
    ACCEPTED, AEAD, ASK, BUSY, CANCEL, DELETE, DONE, DROP, FAILED, FRAME_MAX, HEAD_MAX, HELLO, HMAC,
    JOIN, KEY_MAX, LOST, MISS, PEEK, PERMIT, PUSH, TABLE, TAG, UNSUPPORTED, VALUE, WELCOME, Client,
    Rogue, fields_of, gossip, random_id, update,
)  # fmt: skip
from workers import Failed, until


@pytest.fixture(scope="module", params=["clear", "encrypted"])
def fleet(request, tmp_path_factory):
    with Attacked(tmp_path_factory.mktemp(request.param), request.param) as made:
        yield made


def ask_frame(client, key="nobody-has-it", **wrong):
    """A peek: answered MISS at once."""
    return client.frame(PEEK, {"key": key, "budget_ms": 200}, request_id=7, **wrong)


# -- forged and broken --------------------------------------------------------------------------


def flipped(data):
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def test_the_toolbox_is_a_client_that_nodes_take_for_one_of_theirs(fleet):
    """What is refused below is refused for what is wrong with it."""
    with fleet.unharmed(frames_in=3, datagrams_in=1), fleet.client() as c, Datagrams(fleet) as d:
        c.hello()
        assert c.ask(PEEK, {"key": "nobody-has-it"}).kind == MISS
        key = fleet.key()
        fleet.victim("lookup", "value", key, 3000)
        found = c.ask(PEEK, {"key": fleet.victim("key_of", key, 3000)}, request_id=3)
        assert found.kind == VALUE and found.value.startswith(key.encode())
        assert len(found.value) > 3000
        assert d.answered(d.ping())


def test_every_byte_of_a_first_frame_flipped(fleet):
    with fleet.unharmed(refused_tag=60):
        with fleet.client() as c:
            length = len(c.frame(HELLO))
        for at in range(length):
            with fleet.client() as c:
                assert c.ends(list(flipped(c.frame(HELLO)))[at]) == b"", f"byte {at}"


def test_every_byte_of_a_frame_flipped_on_a_proven_connection(fleet):
    with fleet.unharmed(refused_tag=80):
        with fleet.client() as c:
            length = len(ask_frame(c))
        for at in range(length):
            with fleet.client() as c:
                c.hello()
                assert c.ends(list(flipped(ask_frame(c)))[at]) == b"", f"byte {at}"


def test_every_byte_of_a_value_flipped(fleet):
    """It may not be stored; the connection ends."""
    value = b"a value of some bytes"
    with fleet.unharmed(refused_value=len(value)):
        for at in range(len(value) + (TAG[AEAD] if fleet.mode == AEAD else 0)):
            with fleet.client() as c:
                c.hello()
                push = c.frame(PUSH, {"key": f"flip{at}", "ttl_ms": 60000}, value, request_id=3)
                head = len(push) - len(value) - (TAG[AEAD] if fleet.mode == AEAD else 0)
                wrong = push[: head + at] + bytes([push[head + at] ^ 1]) + push[head + at + 1 :]
                assert c.ends(wrong) == b""
        with fleet.client() as c:
            c.hello()
            for at in range(len(value)):
                assert c.ask(PEEK, {"key": f"flip{at}"}, request_id=9 + at).kind == MISS


def test_every_byte_of_a_datagram_flipped(fleet):
    with Datagrams(fleet) as d, fleet.unharmed(datagrams_refused=100):
        good = d.ping()
        for wrong in flipped(good):
            d.send(wrong)
        assert d.answers() == []
        assert d.answered(good), "and none of them has used up its counter"


def test_truncated_at_every_length(fleet):
    with fleet.unharmed(connections_broken=200, datagrams_refused=100), Datagrams(fleet) as d:
        with fleet.client() as c:
            hello = len(c.frame(HELLO))
            ask = len(ask_frame(c))
        for length in range(1, hello):
            with fleet.client() as c:
                assert c.ends(c.frame(HELLO)[:length]) == b""
        for length in range(1, ask):
            with fleet.client() as c:
                c.hello()
                assert c.ends(ask_frame(c)[:length]) == b""
        ping = d.ping()
        for length in range(len(ping)):
            d.send(ping[:length])
        assert d.answers() == []


def test_a_value_cut_off(fleet):
    with fleet.unharmed(connections_broken=1), fleet.client() as c:
        c.hello()
        push = c.frame(PUSH, {"key": "cut", "ttl_ms": 60000}, bytes(1000), request_id=3)
        assert c.ends(push[:-1]) == b""


OTHERS = {
    "another secret": ("tag", {"secret": "ab" * 32}),
    "another label": ("label", {"label": "another"}),
    "the other mode": ("mode", None),
}


@pytest.mark.parametrize("what", OTHERS)
def test_frames_of_another_cluster(fleet, what):
    """The right secret with another label or mode is as good as none: nobody is talked down
    from an encrypted cluster, or into one."""
    counter, changes = OTHERS[what]
    stranger = fleet.identity(**(changes or {"mode": 1 - fleet.mode}))
    with fleet.unharmed(**{f"refused_{counter}": 3}), Datagrams(fleet, stranger) as d:
        with fleet.client(stranger) as c:
            assert c.ends(c.frame(HELLO)) == b""
        with fleet.client(stranger) as c:
            assert c.ends(c.frame(PUSH, {"key": "forged", "ttl_ms": 60000})) == b""
        assert not d.answered(d.ping())
        d.send(stranger.datagram(0, gossip(JOIN, d.host, d.port, bytes(12)) + bytes(800)))
        assert d.answers() == []


@pytest.mark.parametrize("off_s", [-31, -29, 29, 31])
def test_a_clock_that_is_off(fleet, off_s):
    """More than 30 s either way is refused: a recorded frame is worth nothing by then."""
    fine = abs(off_s) < 30
    wanted = {} if fine else {"refused_clock": 3}
    with fleet.unharmed(**wanted), Datagrams(fleet) as d:
        assert d.answered(d.ping(off_ms=1000 * off_s)) == fine
        with fleet.client() as c:
            data = c.frame(HELLO, off_ms=1000 * off_s)
            if fine:
                c.send(data)
                assert c.receive().kind == WELCOME
            else:
                assert c.ends(data) == b""
        with fleet.client() as c:
            c.hello()
            data = ask_frame(c, off_ms=1000 * off_s)
            if fine:
                c.send(data)
                assert c.receive().kind == MISS
            else:
                assert c.ends(data) == b""


# -- replayed ---------------------------------------------------------------------------------------


def test_a_frame_replayed_on_its_own_connection(fleet):
    with fleet.unharmed(refused_replay=1), fleet.client() as c:
        c.hello()
        data = ask_frame(c)
        c.send(data)
        assert c.receive().kind == MISS
        assert c.ends(data) == b""


def test_frames_replayed_on_another_connection_or_to_another_node(fleet):
    """Both ends' randoms are bound into every tag."""
    with fleet.unharmed(refused_tag=2), fleet.client() as c:
        hello = c.frame(HELLO)
        c.send(hello)
        assert c.receive().kind == WELCOME
        data = ask_frame(c)
        c.send(data)
        assert c.receive().kind == MISS
        with fleet.client() as again:
            assert again.ends(hello) == b""
        with fleet.client() as again:
            again.hello()
            assert again.ends(data) == b""
        other = fleet.honest("stats")["refused_tag"]
        with Client(fleet.identity(), fleet.port_of(fleet.honest)) as again:
            assert again.ends(hello) == b""
        assert fleet.honest("stats")["refused_tag"] == other + 1


def test_datagrams_replayed_to_the_same_and_to_another_node(fleet):
    with fleet.unharmed(refused_replay=2), Datagrams(fleet) as d:
        data = d.ping()
        assert d.answered(data)
        assert not d.answered(data)
        before = fleet.honest("stats")["refused_receiver"]
        assert not d.answered(data, fleet.port_of(fleet.honest))
        assert fleet.honest("stats")["refused_receiver"] == before + 1
        # far behind the session's newest counter: it can't be told any more whether it was seen
        assert d.answered(d.ping(counter=5000))
        assert not d.answered(d.ping(counter=5000 - 1025))


def test_a_frame_reflected_to_its_sender(fleet):
    """A node's own welcome sent back to it, and its own datagram."""
    with fleet.unharmed(refused_tag=2, refused_sender=1), fleet.client() as c:
        c.send(HELLO)
        head = c.exactly(80)
        welcome = head + c.exactly(struct.unpack(">H", head[6:8])[0] - 80)
        assert c.ends(welcome) == b""
        with fleet.client() as again:
            assert again.ends(welcome) == b""
        with Datagrams(fleet) as d:
            d.send(d.ping())
            (answer,) = d.answers()
            assert not d.answered(answer)


def test_frames_replayed_to_a_node_after_its_restart(tmp_path):
    """On the same address and port: another challenge, another id."""
    with Attacked(tmp_path) as fleet:
        with Datagrams(fleet) as d:
            ping = d.ping()
            assert d.answered(ping)
            with fleet.client() as c:
                hello = c.frame(HELLO)
                c.send(hello)
                assert c.receive().kind == WELCOME
            fleet.victim("close")
            fleet.workers.remove(fleet.victim)
            fleet.victim.end()
            fleet.victim = fleet.add()
            fleet.victim("start")
            until(lambda: fleet.victim("state") == "ready" and fleet.live(fleet.honest) == 2)
            assert fleet.port_of(fleet.victim) == fleet.port
            with fleet.unharmed(refused_tag=1, refused_receiver=1):
                assert not d.answered(ping)
                with fleet.client() as c:
                    assert c.ends(hello) == b""


def test_counters_at_their_end(fleet):
    """A sender that has used its counters up is heard no more on that connection, or in that
    session of datagrams; nothing wraps."""
    last = 2**64 - 1
    with fleet.unharmed(refused_replay=4), Datagrams(fleet) as d:
        with fleet.client() as c:
            c.hello()
            assert c.ask(PEEK, {"key": "nobody-has-it"}, counter=last).kind == MISS
            assert c.ends(ask_frame(c, counter=0)) == b""
        with fleet.client() as c:
            c.hello()
            c.send(PEEK, {"key": "nobody-has-it"}, request_id=3, counter=last)
            assert c.receive().kind == MISS
            assert c.ends(ask_frame(c, counter=last)) == b""
        with fleet.client() as c:       # the value's own counter would be 2^64
            c.hello()
            assert c.ends(c.frame(PUSH, {"key": "end"}, value_bytes=17, counter=last)) == b""
        assert d.answered(d.ping(counter=last))
        assert not d.answered(d.ping(counter=1))


def test_another_sender_within_a_connection(fleet):
    """Ids are part of what is checked, whatever the tag says."""
    with fleet.unharmed(refused_sender=2, refused_receiver=1):
        for wrong in {"sender": random_id()}, {"sender": fleet.node_id}, {"receiver": random_id()}:
            with fleet.client() as c:
                c.hello()
                assert c.ends(ask_frame(c, **wrong)) == b""


# -- lengths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, FRAME_MAX, FRAME_MAX + 1, 2**32 - 1])
def test_a_value_announced_by_one_who_has_not_proven_itself(fleet, length):
    """Not a byte is set aside for it."""
    with fleet.unharmed(refused_bound=1), fleet.client() as c:
        assert c.ends(c.frame(HELLO, value_bytes=length) + b"x") == b""


@pytest.mark.parametrize("length", [FRAME_MAX, FRAME_MAX + 1, 2**32 - 1])
def test_a_value_above_the_bound_announced_by_a_member(fleet, length):
    with fleet.unharmed(refused_bound=1), fleet.client() as c:
        c.hello()
        assert c.ends(ask_frame(c, value_bytes=length)) == b""


@pytest.mark.parametrize("length", [0, 79, 80, 80 + 15, HEAD_MAX + 1, 2**16 - 1])
def test_a_head_of_an_impossible_length(fleet, length):
    with fleet.unharmed(refused_bound=2), Datagrams(fleet) as d:
        with fleet.client() as c:
            assert c.ends(c.frame(HELLO, head_bytes=length)) == b""
        assert not d.answered(d.ping(head_bytes=length))


def test_frames_at_the_bound(fleet):
    """Head and value of exactly 8 MiB pass; what a node would have to send above it stays
    with its caller."""
    with fleet.unharmed(mib=40, too_big=1):
        if fleet.mode == HMAC:      # in Python the cipher is too slow for so much
            with fleet.client() as c:
                c.hello()
                size = FRAME_MAX - 80 - 40 - 32 - 32 - len("biggest")
                c.send(DELETE, {"key": "biggest", "flags": 16, "ttl_ms": 1000}, bytes(size),
                       request_id=3)  # fmt: skip
                assert c.receive(10).request_id == 3
        for size, again in (FRAME_MAX - HEAD_MAX, "owner"), (FRAME_MAX, "load"):
            key = fleet.key()
            assert fleet.victim("sized", key, size) == {"size": size, "tier": "load"}
            silent = fleet.honest("stats")["asks_silent"]
            assert fleet.honest("sized", key, size) == {"size": size, "tier": again}
            assert fleet.honest("stats")["asks_silent"] == silent, "the owner is not to blame"
            assert fleet.victim("forget", key) and fleet.honest("forget", key)
        key = fleet.key()       # a registered loader, at its owner, makes what can't travel
        silent = fleet.honest("stats")["asks_silent"]
        assert fleet.honest("lookup", "value", key, FRAME_MAX)["value"].startswith(key)
        assert fleet.honest("stats")["asks_silent"] == silent


def test_keys_of_none_of_the_most_and_of_one_more_byte(fleet):
    with fleet.unharmed(refused_fields=1), fleet.client() as c:
        c.hello()
        assert c.ask(PEEK, {"key": ""}).kind == UNSUPPORTED
        assert c.ask(ASK, {"key": "", "budget_ms": 200}).kind == UNSUPPORTED
        assert c.ask(PEEK, {"key": "k" * KEY_MAX}).kind == MISS
        assert c.ends(c.frame(PEEK, {"key": "k" * (KEY_MAX + 1)})) == b""
    prefix = len(fleet.victim("raw_key", ""))
    fleet.victim("put", "k" * (KEY_MAX - prefix), "fits")
    with pytest.raises(Exception, match="(?i)key"):
        fleet.victim("put", "k" * (KEY_MAX - prefix + 1), "does not")


FIELDS = {
    "cut short": lambda: fields_of({"key": "k"})[:-1],
    "bytes behind them": lambda: fields_of({"key": "k"}) + b"x",
    "a chain of nine": lambda: fields_of({"key": "k", "chain": [1] * 9}),
    "an unknown type of value": lambda: fields_of({"key": "k", "value_type": 200}),
    "an unknown flag": lambda: fields_of({"key": "k", "flags": 128}),
    "none at all": lambda: b"",
}


@pytest.mark.parametrize("what", FIELDS)
def test_fields_that_verify_and_do_not_parse(fleet, what):
    with fleet.unharmed(refused_fields=1), fleet.client() as c:
        c.hello()
        assert c.ends(c.frame(PEEK, fields=FIELDS[what]())) == b""


def test_every_kind_there_is_and_is_not(fleet):
    """From a member: with a value and without, with a key and without. What is unknown is
    answered "unsupported" and is no reason to close; nothing stops the node."""
    kinds = range(256) if fleet.mode == HMAC else range(0, 256, 7)     # its cipher is Python's
    with fleet.unharmed(mib=16, frames_in=2 * len(kinds)):
        for kind in kinds:
            for message in {}, {"key": "any", "channel": "c", "ttl_ms": 1000, "flags": 16}:
                with fleet.client() as c:
                    c.hello()
                    c.send(kind, message, request_id=5)
                    c.send(kind, message, b"\x01" + bytes(32) if fleet.mode == HMAC else b"v",
                           request_id=6)  # fmt: skip
                    if kind > 28 or kind == 0:
                        assert c.receive().kind == UNSUPPORTED
                        assert c.receive().kind == UNSUPPORTED
                    got = c.ask(PEEK, {"key": "nobody-has-it"}, request_id=99) if (
                        kind > 28) else None  # fmt: skip
                    assert got is None or got.kind == MISS


def test_permits_and_cancels_for_requests_that_are_not_there(fleet):
    with fleet.unharmed(), fleet.client() as c:
        c.hello()
        for kind in 14, 15, 16, CANCEL:
            c.send(kind, {"key": "x", "ttl_ms": 1000}, b"forged" if kind < 16 else b"",
                   request_id=12345)  # fmt: skip
        assert c.ask(PEEK, {"key": "x"}).kind == MISS


def test_a_table_pull_of_rubbish(fleet):
    with fleet.unharmed(), fleet.client() as c:
        c.hello()
        for n, value in enumerate([b"", b"\x01", b"\x01" + bytes(512), b"\xff" * 5000]):
            if value[:1] == b"\xff" and fleet.mode == AEAD:
                value = value[:200]
            c.send(TABLE, {}, value, request_id=10 + n)
            assert c.receive().request_id == 10 + n


def test_a_delete_that_verifies_is_believed_and_bounded(fleet):
    """A member may delete; ids it makes up are remembered for a bounded time only."""
    count = 2000 if fleet.mode == HMAC else 200
    with fleet.unharmed(mib=16, drops=count), fleet.client() as c:
        c.hello()
        for n in range(count):
            c.send(DROP, {"key": f"gone{n}", "delete_id": n + 1}, request_id=n + 2)
            if n % 100 == 99:
                for _ in range(100):
                    c.receive()


# -- many at once -----------------------------------------------------------------------------------


def heads(client, count):
    """(kind, request id, bytes of the value) of so many frames, not opened: in Python the cipher is
    too slow for large ones."""
    client.sock.settimeout(10)
    for _ in range(count):
        fixed = client.exactly(80)
        kind, head_bytes, value_bytes = fixed[4], *struct.unpack(">HI", fixed[6:12])
        client.exactly(head_bytes - 80 + value_bytes)
        yield kind, struct.unpack(">Q", fixed[72:80])[0], value_bytes


def test_a_burst_of_every_sort_is_taken_in_its_order(fleet):
    """W11. What comes with one read is opened before it is answered, and questions are looked up side
    by side; the answers are those of frames that come one by one. HELLO is the first of them."""
    small, large, gone = fleet.key(), fleet.key(), fleet.key()
    made = {small: 0, large: 3000, gone: 0}
    for key, size in made.items():
        fleet.victim("lookup", "value", key, size)
    names = {key: fleet.victim("key_of", key, size) for key, size in made.items()}
    lacked = fleet.key()
    before = [(ASK, small, VALUE), (ASK, large, VALUE), (PEEK, "nobody-has-it", MISS),
              (77, "", UNSUPPORTED), (ASK, gone, VALUE), (PEEK, large, VALUE)]  # fmt: skip
    after = [(ASK, small, VALUE), (PEEK, gone, MISS), (ASK, large, VALUE)]
    loads = [(ASK, lacked, PERMIT), (ASK, small, VALUE)]
    sent = [(HELLO, "", WELCOME), *before * 5, (DROP, gone, DONE), *after * 10, *loads]
    with fleet.unharmed(frames_in=len(sent), drops=1), fleet.client() as c:
        c.sock.sendall(b"".join(
            c.frame(kind, {"key": names.get(key, key), "budget_ms": 200, "delete_id": kind == DROP,
                           "flags": 2}, request_id=n)
            for n, (kind, key, _) in enumerate(sent, 1)
        ))  # fmt: skip
        for n, (_, key, expected) in enumerate(sent, 1):
            answer = c.receive()
            assert (answer.request_id, answer.kind) == (n, expected), (n, key)
            if expected == VALUE:
                assert answer.value.startswith(key.encode())
                assert (len(answer.value) > 3000) == (key == large)


def test_a_question_joins_one_of_its_burst(fleet):
    """W11. Two that could load, and the first one's cancel, in one read: the second waited for the
    first, and is told to ask again."""
    with fleet.unharmed(permits_granted=1), fleet.client() as c:
        c.hello()
        lacked = {"key": fleet.key(), "budget_ms": 500, "flags": 2}
        c.sock.sendall(b"".join(
            c.frame(kind, lacked, request_id=n) for kind, n in ((ASK, 2), (ASK, 3), (CANCEL, 2))
        ))  # fmt: skip
        got = [c.receive() for _ in range(3)]
        assert [(f.kind, f.request_id) for f in got] == [(PERMIT, 2), (ACCEPTED, 3), (LOST, 3)]


def test_a_burst_whose_answers_are_too_much_waits_for_its_reader(fleet):
    """W11. 40 MB of answers to questions of one read: 4 MiB and one answer wait to be read, besides
    what the system takes, and the frames behind them until they are. Who goes instead leaves
    nothing behind."""
    key, size = fleet.key(), 2_500_000
    fleet.victim("sized", key, size)
    name = fleet.victim("raw_key", key)
    with fleet.unharmed(mib=48):
        for kinds, reads in ((ASK,), True), ((ASK, ASK, DROP), True), ((ASK, ASK, PUSH), False):
            with fleet.client() as c:
                c.hello()
                before = fleet.victim("stats")["frames_in"]
                c.sock.sendall(b"".join(
                    c.frame(kind, {"key": name if kind == ASK else "nobody-has-it",
                                   "budget_ms": 200, "delete_id": kind == DROP, "ttl_ms": 1},
                            bytes(100) if kind == PUSH else b"", request_id=n)
                    for n, kind in enumerate(itertools.islice(itertools.cycle(kinds), 16), 2)
                ))  # fmt: skip
                time.sleep(0.5)
                assert fleet.victim("stats")["frames_in"] - before < 14, "it did not wait"
                if reads:
                    found = list(heads(c, 16))
                    assert [n for _, n, _ in found] == list(range(2, 18))
                    whole = size + (TAG[AEAD] if fleet.mode == AEAD else 0)
                    assert {(kind, length) for kind, _, length in found} == {
                        (VALUE, whole) if kind == ASK else (DONE, 0) for kind in kinds
                    }
    assert fleet.victim("forget", key)


@pytest.mark.parametrize("size", [100, 2_500_000], ids=["small", "large"])
@pytest.mark.parametrize("bad", ["head", "value"])
def test_a_burst_with_a_forged_frame_in_it(fleet, bad, size):
    """W11, W6. What verified before it is taken, also where it had to wait; nothing behind it is, and
    the connection is closed."""
    key = fleet.key()
    fleet.victim("sized", key, size)
    name = fleet.victim("raw_key", key)
    counter = {"head": "refused_tag", "value": "refused_value"}[bad]
    for count in (1, 2, 7, 16, 17):
        with fleet.unharmed(mib=48, **{counter: 1, "frames_in": count}), fleet.client() as c:
            c.hello()
            frames_in = fleet.victim("stats")["frames_in"]
            good = [c.frame(ASK, {"key": name, "budget_ms": 200}, request_id=n) for n in range(count)]
            forged = (c.frame(ASK, {"key": name}, request_id=98) if bad == "head" else
                      c.frame(PUSH, {"key": "pushed", "ttl_ms": 1000}, b"value", request_id=98))  # fmt: skip
            behind = [c.frame(ASK, {"key": name}, request_id=99) for _ in range(8)]
            c.sock.sendall(b"".join(good) + forged[:-1] + bytes([forged[-1] ^ 1]) + b"".join(behind))
            answered = []
            with pytest.raises(EOFError):
                for kind, n, _ in heads(c, count + 8):
                    answered.append(n)
                    assert kind == VALUE
            assert answered == list(range(len(answered))) and len(answered) <= count
            others = 2              # the honest node may say something meanwhile
            assert count <= fleet.victim("stats")["frames_in"] - frames_in <= count + others
    assert fleet.victim("forget", key)


# -- an answer's worth ------------------------------------------------------------------------------


def test_no_answer_is_larger_than_what_asked_for_it(fleet):
    """A datagram that leaves its receiver open could be a recorded one from a forged source:
    it is no amplifier."""
    port = fleet.free_port()
    with Rogue(fleet.identity(), port) as rogue:
        until(lambda: rogue.join(fleet.port) or fleet.live(fleet.victim) == 3, 10)
        sizes = []
        with Datagrams(fleet, rogue.me) as d:
            for pad in (0, 100, 200, 400, 800, 1300):
                payload = gossip(JOIN, rogue.host, port, bytes(12), rogue.record())
                data = rogue.me.datagram(0, payload, pad_to=pad)
                d.send(data)
                answers = d.answers(0.2)
                assert all(len(a) <= len(data) for a in answers), (len(data), answers)
                sizes += [len(a) for a in answers]
        assert sizes, "a join from a member is answered"
        rogue.leave(fleet.port, fleet.node_id)
    until(lambda: fleet.live(fleet.victim) == 2 and fleet.live(fleet.honest) == 2, 30)


def test_an_open_receiver_is_for_joins_only(fleet):
    with fleet.unharmed(gossip_refused=1), Datagrams(fleet) as d:
        assert not d.answered(d.ping(receiver=0))


def test_a_recorded_join_is_worth_a_challenge_at_most(fleet):
    """Whoever replays it to another node makes that one challenge the advertised address,
    once: nobody is admitted for it."""
    with fleet.unharmed(refused_replay=1), Datagrams(fleet) as d:
        record = update(d.host, d.port, d.me.id, int(time.time() * 1000))
        data = d.me.datagram(0, gossip(JOIN, d.host, d.port, struct.pack(">IQ", 1, 0), record),
                             pad_to=1300)  # fmt: skip
        for port in fleet.port, fleet.port_of(fleet.honest):
            d.send(data, port)
            assert len(d.answers()) == 1
            d.send(data, port)
            assert d.answers() == []
        time.sleep(2.5)
        assert fleet.live(fleet.victim) == fleet.live(fleet.honest) == 2


# -- answers ----------------------------------------------------------------------------------------


@pytest.fixture
def rogue_owner(fleet):
    """A member that owns some channels and answers as it likes."""
    with Rogue(fleet.identity(), fleet.free_port()) as rogue:
        until(lambda: rogue.join(fleet.port) or (
            fleet.live(fleet.victim) == 3 and fleet.live(fleet.honest) == 3), 10)  # fmt: skip
        yield rogue
        rogue.leave(fleet.port, fleet.node_id)
    until(lambda: fleet.live(fleet.victim) == 2 and fleet.live(fleet.honest) == 2, 30)


def keys_of(fleet, rogue, what, count):
    prefix = f"{what[:8].replace(' ', '-')}-{rogue.port}"
    return fleet.honest("owned", f"127.0.0.1:{rogue.port}", prefix, count)


def test_answers_swapped_on_the_way(fleet, rogue_owner):
    """Two answers of one connection in the other order, each as its sender sealed it: the
    request id is under the tag and the counters rise, so no question gets the other's."""
    held = {}

    def swap(link, frame):
        frames = held.setdefault(link, [])
        frames.append(frame)
        if len(frames) == 2:
            made = [link.frame(VALUE, {"ttl_ms": 60000}, b"for " + f.message["key"],
                               request_id=f.request_id) for f in frames]  # fmt: skip
            link.send(made[1])
            link.send(made[0])

    rogue_owner.answer = swap
    before = fleet.honest("stats")["refused_replay"]
    for attempt in range(10):       # until two questions were on their way on one connection
        keys = keys_of(fleet, rogue_owner, f"swap{attempt}", 2)
        got = [a.result(20)["value"] for a in [
            fleet.honest.ask("alookup", "avalue", key) for key in keys]]  # fmt: skip
        for key, other, value in zip(keys, keys[::-1], got, strict=True):
            assert key in value and other not in value, "an answer to another question"
        if fleet.honest("stats")["refused_replay"] > before:
            return
        time.sleep(3.5)             # a silent owner is left alone for 3 s
    raise AssertionError("no two answers were swapped")


WRONG_ANSWERS = {
    "another request's id": lambda link, f: link.send(
        VALUE, {"ttl_ms": 60000}, b"forged", request_id=f.request_id + 1000),
    "a digest or a tag that is not the value's": lambda link, f: link.send(
        link.frame(VALUE, {"ttl_ms": 60000}, b"forged", request_id=f.request_id)[:-1] + b"?"),
    "nothing but a closed connection": lambda link, f: link.sock.shutdown(2),
    "no frame": lambda link, f: link.send(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200)),
    "a kind that answers nothing": lambda link, f: link.send(HELLO, request_id=f.request_id),
    "a longer value than there may be": lambda link, f: link.send(
        link.frame(VALUE, {"ttl_ms": 60000}, request_id=f.request_id, value_bytes=2**32 - 1)),
    "silence": lambda link, f: None,
    "fields that do not parse": lambda link, f: link.send(
        VALUE, fields=b"\xff" * 40, request_id=f.request_id),
    "lost, again and again": lambda link, f: link.send(LOST, request_id=f.request_id),
    "busy": lambda link, f: link.send(BUSY, request_id=f.request_id),
    "text that is no JSON": lambda link, f: link.send(
        VALUE, {"ttl_ms": 60000, "value_type": 2}, b"{", request_id=f.request_id),
    "a pickle that was not asked for": lambda link, f: link.send(
        VALUE, {"ttl_ms": 60000, "value_type": 3}, b"cos\nsystem\n(S'false'\ntR.",
        request_id=f.request_id),
    "an error that is no error": lambda link, f: link.send(
        FAILED, {"value_type": 4}, b"[1, 2", request_id=f.request_id),
}  # fmt: skip
# A member's own word for what a value is: its asker gets an error, and never runs a pickle.
ERRORS = "text that is no JSON", "a pickle that was not asked for", "an error that is no error"


def test_wrong_answers_from_an_owner_that_lies(fleet, rogue_owner):
    """An asker turns to the next in rank, or loads for itself; a later question is not held
    up by what an earlier one was told."""
    for what, answer in WRONG_ANSWERS.items():
        rogue_owner.answer = answer
        for how, name, key in zip(("lookup", "alookup"), ("value", "avalue"),
                                  keys_of(fleet, rogue_owner, what, 2), strict=True):  # fmt: skip
            begun = time.monotonic()
            try:
                got = fleet.honest(how, name, key)
                assert got["value"].startswith(f"{key} by "), (what, got)
            except Failed as failed:
                assert what in ERRORS, (what, failed.said)
            assert time.monotonic() - begun < 3, what
    fleet.serves()
