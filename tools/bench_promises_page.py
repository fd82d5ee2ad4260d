"""The page of ``bench_promises.py``: what was promised, what was measured, what was not run."""

from __future__ import annotations

from typing import Any

TITLE = """\
# What is promised, measured

Written by `make bench-promises` (`tools/bench_promises.py`). The kernel is `activation` for the CPU,
and "from source" means the same sources, unchanged, by `torch.utils.cpp_extension`. Every time ends
with a result that was compared with torch's.
"""
NOT_RUN = """\
## Not run here

* A result by another Python or torch than those in the table above: only this torch can be had on the
  machine that measures, for one Python. The file's own demands say what it should run on; `tools/gpu_other_python.py` runs the same
  file on another machine.
* Other distributions: the newest glibc that the file asks for is read from it, no older one was booted.
* FlashAttention: it is not among our kernels yet, so neither is its build of many gigabytes.
* A line with latency: the hub is on loopback behind a proxy that limits the rate alone.
"""


def render(results: dict[str, Any]) -> str:
    """Write the page from what was measured, group by group."""
    parts = [TITLE]
    groups = {
        "first": render_first,
        "line": render_line,
        "source": render_source,
        "llama": render_llama,
        "binary": render_binary,
    }
    for name, write in groups.items():
        if name in results:
            parts.append(write(results[name]) + "\n\n" + measured_on(results[name]["machine"]))
    return "\n".join([*parts, NOT_RUN])


def measured_on(machine: dict[str, Any]) -> str:
    """Say where and when one group was measured."""
    shared = (
        f"**on a shared machine (load {machine['load']} before the run): times are too long**"
        if machine["shared"]
        else f"on a quiet machine (load {machine['load']})"
    )
    return (
        f"Measured {shared}: {machine['cpu']}, {machine['cores']} cores, Python {machine['python']},"
        f" torch {machine['torch']}, {machine['date']}, commit `{machine['commit']}`.\n"
    )


def table(head: list[str], rows: list[list[object]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def megabytes(count: float) -> str:
    """Write bytes in megabytes, small numbers with a decimal."""
    return f"{count / 1e6:.1f} MB" if count < 1e7 else f"{count / 1e6:.0f} MB"


def render_first(first: dict[str, Any]) -> str:
    """From nothing to the first correct result."""
    kernel, source = first["kernel"], first["source"]
    both = first["venv_s"] + first["torch_s"]
    steps: list[list[object]] = [
        ["make an environment, install torch and numpy", f"{both:.1f} s", f"{both:.1f} s"],
        [
            "install what else is needed",
            f"{kernel['install_s']:.1f} s",
            f"{source['install_s']:.1f} s",
        ],
        [
            "to the first correct result",
            f"{kernel['first_result_s']:.1f} s",
            f"{source['first_result_s']:.1f} s",
        ],
        [
            "all",
            *(f"{both + s['install_s'] + s['first_result_s']:.1f} s" for s in (kernel, source)),
        ],
        ["packages beside torch's", len(kernel["packages"]), len(source["packages"])],
    ]
    names = ", ".join(f"`{name}`" for name in kernel["packages"])
    others = ", ".join(f"`{name}`" for name in source["packages"])
    return (
        "## From an empty environment to the first correct result\n\n"
        + table(["", "`get_kernel`", "from source"], steps)
        + f"\n\nPackages: {names}; from source {others or 'none'}, and a C++ compiler that is installed"
        " already. Packages come from wherever pip is set to look; the rows above are with torch for the CPU."
    )


def render_line(line: dict[str, Any]) -> str:
    """Cold loads over lines of several rates."""
    rows: list[list[object]] = [
        [
            f"`{each['kernel']}`",
            each["line"],
            f"{line['lines'][each['line']]:.0f} Mbit/s",
            megabytes(each["bytes"]),
            f"{8 * each['bytes'] / 1e6 / line['lines'][each['line']]:.2f} s",
            f"**{each['seconds']:.2f} s**",
            f"{each['slowest']:.2f} s",
        ]
        for each in line["loads"]
    ]
    head = [
        "kernel",
        "line",
        "a plain download got",
        "carried",
        "that takes",
        "the load",
        "slowest",
    ]
    return (
        "## A cold load, by the line\n\n"
        + table(head, rows)
        + f"\n\nFrom `import kernels` to the checked result, in a new process with torch in it and an empty"
        f" cache; medians of {line['rounds']}. `big` is 32 MB of noise, since kernels for GPUs are larger"
        " than `activation` for the CPU; its result is its length. The line is a proxy on this machine,"
        " and the third column is what it really gave."
    )


def render_source(source: dict[str, Any]) -> str:
    """What one process uses, from a hub and from source."""
    rows: list[list[object]] = []
    titles = {
        "kernel": "`get_kernel`",
        "source": "from source",
        "import torch": "`import torch` alone",
    }
    for name, title in titles.items():
        each = source[name]
        rows.append(
            [
                title,
                f"{each['seconds']:.1f} s",
                f"{each['cpu_seconds']:.1f} s",
                megabytes(each["peak_bytes"]),
                megabytes(each["disk"]) if each["disk"] else "",
            ]
        )
    flags = " ".join(source["flags"])
    return (
        "## The same result from source\n\n"
        + table(["one new process", "time", "CPU time", "peak memory", "disk"], rows)
        + f"\n\n{source['rounds']} rounds, medians; torch's import is in all of them. Flags that its user has to"
        f" know: none for `get_kernel`; from source `{flags}` and {source['include_paths']} include"
        " directories. The hub is a folder here; what a line adds is above."
    )


def render_llama(llama: dict[str, Any]) -> str:
    """Lines changed in a model of transformers."""
    return (
        "## Lines changed in a Llama of transformers\n\n"
        f"**{len(llama['changed_files'])}**: all {llama['python_files']} Python files of transformers"
        f" {llama['transformers']} are as pip installed them, and {llama['kernels']} of {llama['layers']}"
        " RMSNorm and SiLU layers of the model run a kernel. Logits differ by at most"
        f" {llama['largest_difference']:.1e} (the largest is {llama['largest_logit']:.2f}; float32,"
        " random weights). The user names the two layers' kernels and calls `transformers.kernelize`"
        " ([guide](../guide/layers.md))."
    )


def render_binary(binary: dict[str, Any]) -> str:
    """One file, several Pythons."""
    rows: list[list[object]] = [
        [each["python"], each["build"].partition("[")[2].strip("]"), each["torch"], each["libc"]]
        for each in binary["ran"]
    ]
    newest = ", ".join(f"{family} {version}" for family, version in binary["newest"].items())
    same = "the same bytes" if binary["same_bytes"] else "**different bytes**"
    return (
        "## One binary\n\n"
        f"`{binary['variant']}`, {megabytes(binary['bytes'])}. It asks for {newest} at the newest, and for"
        f" {', '.join(f'`{name}`' for name in binary['needs'])}. Loaded and checked with {same} by:\n\n"
        + table(["Python", "built by", "torch", "C library"], rows)
        + "\n\nImported, with the C++ part of that torch and nothing computed, by Python "
        + ", ".join(binary["imported"])
        + "."
    )
