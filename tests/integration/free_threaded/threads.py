"""Many threads load the same and different kernels at once; prints one JSON document.

Arguments: how many kernels ``acme/k0``, ``acme/k1``, ... there are, and how many threads.
"""

import json
import sys
import threading

import kernels

count, threads = map(int, sys.argv[1:])
barrier = threading.Barrier(threads)
lock = threading.Lock()
modules: dict[str, set[int]] = {}
wrong: list[str] = []


def work(number: int) -> None:
    for turn in range(3):
        barrier.wait()
        if turn == 1:
            kernels.load.forget()
        for step in range(count):
            name = f"k{(number * (turn + 1) + step) % count}"
            try:
                module = kernels.get_kernel(f"acme/{name}", version=1)
                # A late import inside the copy, by its public name.
                if (module.NAME, module.late()) != (name, name):
                    raise AssertionError(
                        f"{name} is {module.NAME}, its late import {module.late()}"
                    )
            except Exception as err:  # noqa: BLE001 - all are counted
                with lock:
                    wrong.append(repr(err))
            else:
                with lock:
                    modules.setdefault(name, set()).add(id(module))


pool = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
for thread in pool:
    thread.start()
for thread in pool:
    thread.join(120)
alive = sum(thread.is_alive() for thread in pool)
print(
    json.dumps(
        {
            "wrong": wrong[:5],
            "alive": alive,
            "modules": {name: len(ids) for name, ids in modules.items()},
            "loaded": len(kernels.get_loaded_kernels()),
            "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        }
    )
)
