from pathlib import Path

from kernel_builder.parallelism import available_memory, choose_jobs, count_cpus

GB = 1_000_000_000


def machine(root: Path, **files: str) -> Path:
    places = {
        "meminfo": "proc/meminfo",
        "cpu_max": "sys/fs/cgroup/cpu.max",
        "memory_max": "sys/fs/cgroup/memory.max",
        "memory_current": "sys/fs/cgroup/memory.current",
        "memory_stat": "sys/fs/cgroup/memory.stat",
    }
    for name, text in files.items():
        place = root / places[name]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    assert choose_jobs(GB, root=tmp_path) == count_cpus(tmp_path) >= 1


def test_memory_of_the_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, meminfo="MemTotal: 9 kB\nMemAvailable:    1000000 kB\n")
    assert available_memory(root) == 1_024_000_000
    assert choose_jobs(2 * GB, root=root) == 1


def test_a_container_has_less_than_its_machine(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        meminfo="MemAvailable: 100000000 kB\n",
        memory_max=f"{4 * GB}\n",
        memory_current=f"{3 * GB}\n",
        memory_stat=f"anon 1\ninactive_file {GB}\n",
    )
    assert available_memory(root) == 2 * GB


def test_a_container_without_limits(tmp_path: Path) -> None:
    root = machine(tmp_path, cpu_max="max 100000\n", memory_max="max\n", memory_current="5\n")
    assert available_memory(root) is None
    assert count_cpus(root) == count_cpus(tmp_path / "nowhere")


def test_a_quota_of_cpus(tmp_path: Path) -> None:
    assert count_cpus(machine(tmp_path, cpu_max="50000 100000\n")) == 1
