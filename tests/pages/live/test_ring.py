from threading import Thread

from onesigma.pages.live.ring import Ring


def test_a_late_reader_gets_what_is_still_there():
    ring = Ring(3)
    for number in range(5):
        ring.append(b"%d" % number)
    assert ring.after(0, timeout=0) == (5, [b"2", b"3", b"4"])
    assert ring.after(4, timeout=0) == (5, [b"4"])
    assert ring.after(5, timeout=0) == (5, [])


def test_a_slow_reader_does_not_make_it_grow():
    ring = Ring(10)
    place, _ = ring.after(0, timeout=0)
    for _ in range(1000):
        ring.append(bytes(100))
    place, events = ring.after(place, timeout=0)
    assert place == 1000
    assert len(events) == 10


def test_readers_keep_their_own_places():
    ring = Ring(10)
    ring.append(b"a")
    first, _ = ring.after(0, timeout=0)
    ring.append(b"b")
    assert ring.after(first, timeout=0) == (2, [b"b"])
    assert ring.after(0, timeout=0) == (2, [b"a", b"b"])


def test_a_reader_waits():
    ring = Ring(10)
    found = []
    reader = Thread(target=lambda: found.append(ring.after(0, timeout=30)))
    reader.start()
    ring.append(b"a")
    reader.join()
    assert found == [(1, [b"a"])]
