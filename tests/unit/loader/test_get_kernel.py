"""What a user of ``get_kernel`` sees with a directory hub."""

from __future__ import annotations

import time

import kernels


def test_one_line_loads_a_published_kernel(publisher):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    assert toy.double(21) == 42
    assert "double" in dir(toy)


def test_repeat_is_the_same_module_within_100_microseconds(publisher):
    publisher.publish("acme/toy")
    toy = kernels.get_kernel("acme/toy")
    times = []
    for _ in range(200):
        start = time.perf_counter()
        again = kernels.get_kernel("acme/toy")
        times.append(time.perf_counter() - start)
        assert again is toy
    print(sorted(times)[100] * 1e6)
