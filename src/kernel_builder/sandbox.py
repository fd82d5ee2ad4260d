"""Programs that see only what they are given: no network, no home, the inputs read-only."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, assert_never

from kernel_builder.errors import CommandError, ToolchainError
from kernel_builder.process import Finished, run
from kernel_builder.settings import SandboxMode, Settings

# What makes the machine: compilers, their libraries, and how the dynamic loader finds those.
_SYSTEM = (
    *(
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/opt/rocm",
        "/nix/store",
        "/gnu/store",
    ),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
)
_DEVICE_FILES = ("null", "zero", "full", "random", "urandom")
_GPU_DEVICES = ("/dev/dri", "/dev/kfd", *(f"/dev/nvidia{name}" for name in (*range(16), "ctl")))
_GPU_DEVICES += ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NOWHERE = "/nonexistent"
_TRIAL_SECONDS = 20
# Where a shell and bubblewrap begin to count the signals that ended a program.
_SIGNALS = 128


class Mechanism(StrEnum):
    """The program that separates others from the machine."""

    BUBBLEWRAP = "bubblewrap"
    UNSHARE = "unshare"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sandbox:
    """How programs are separated here.

    Attributes:
        mechanism: by what; None: they are not.
        start: the command that separates, with its first arguments.
        mountpoint: an empty directory that ``unshare`` builds the view in.
        note: what the author should know.
    """

    mechanism: Mechanism | None
    start: tuple[str, ...] = ()
    mountpoint: Path = Path(_NOWHERE)
    note: str = ""


OPEN = Sandbox(mechanism=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What a confined program sees besides the system; everything else is not there.

    Attributes:
        readable: files and directories that it may read.
        writable: directories that it may write to.
        gpu: whether it sees the devices of GPUs, as an import may ask for them.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    gpu: bool = False


def choose_sandbox(settings: Settings) -> Sandbox:
    """Find what separates programs on this machine, by really trying it.

    Raises:
        ToolchainError: nothing does, and ``settings.sandbox`` requires it.
    """
    if settings.sandbox is SandboxMode.OFF:
        return replace(OPEN, note="built without a sandbox, as asked: not hermetic")
    mountpoint = settings.cache / "root"
    mountpoint.mkdir(parents=True, exist_ok=True)
    faults = []
    for sandbox in _candidates(settings, mountpoint):
        fault = _try(sandbox, settings)
        if fault is None:
            return replace(sandbox, note=f"built in a sandbox by {sandbox.mechanism}: no network")
        faults.append(f"{shlex.join(sandbox.start)}: {fault}")
    why = "; ".join(faults) or "neither bwrap nor unshare is installed"
    if settings.sandbox is SandboxMode.REQUIRE:
        raise ToolchainError(
            f"--sandbox require: programs cannot be separated here ({why}); install bubblewrap, "
            "and allow user namespaces to this user or container"
        )
    return replace(
        OPEN,
        note=f"not hermetic: the build saw the network and all files of this user ({why}); install "
        "bubblewrap, and allow user namespaces",
    )


def _candidates(settings: Settings, mountpoint: Path) -> Iterable[Sandbox]:
    bwrap = shutil.which("bwrap", path=settings.search_path)
    if bwrap is not None:
        yield Sandbox(mechanism=Mechanism.BUBBLEWRAP, start=(bwrap,), mountpoint=mountpoint)
    unshare = shutil.which("unshare", path=settings.search_path)
    if unshare is not None:
        # Root may do it directly where user namespaces are forbidden.
        for more in ((),) * (os.geteuid() == 0) + (("--map-root-user",),):
            yield Sandbox(
                mechanism=Mechanism.UNSHARE, start=(unshare, *more), mountpoint=mountpoint
            )


def _try(sandbox: Sandbox, settings: Settings) -> str | None:
    """Say why a sandbox does not work here, or None."""
    # The cache is there outside, and no part of the view.
    probe = ["/bin/sh", "-c", 'test -e "$1" || echo confined', "sh", str(settings.cache)]
    try:
        done = run_confined(
            probe,
            sandbox=sandbox,
            view=View(),
            cwd=Path("/tmp"),
            variables=settings.variables,
            timeout=_TRIAL_SECONDS,
        )
    except CommandError as err:
        said = err.finished.output.strip().splitlines()
        return said[-1] if said else f"exit code {err.finished.code}"
    return None if "confined" in done.output else "the machine's files are still there"


def run_confined(
    command: Sequence[str | Path],
    *,
    sandbox: Sandbox,
    view: View,
    cwd: Path,
    variables: Mapping[str, str],
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
) -> Finished:
    """Run a program as :func:`kernel_builder.process.run` does, seeing the view alone.

    Paths are the same inside as outside. A signal that ended it is a negative exit code, as there.

    Raises:
        CommandError: it cannot be started, ran too long, or (with ``check``) failed.
    """
    words = [str(word) for word in command]
    match sandbox.mechanism:
        case None:
            return run(
                words, cwd=cwd, variables=variables, timeout=timeout, on_line=on_line, check=check
            )
        case Mechanism.BUBBLEWRAP:
            words = [*sandbox.start, *bubblewrap_arguments(view, cwd), "--", *words]
        case Mechanism.UNSHARE:
            script = unshare_script(view, sandbox.mountpoint)
            words = [*sandbox.start, *_UNSHARE, "sh", "-c", script, "sh", str(cwd), *words]
        case _:
            assert_never(sandbox.mechanism)
    search = os.pathsep.join([variables.get("PATH", ""), "/usr/bin", "/bin"]).lstrip(os.pathsep)
    inside = {**variables, "HOME": _NOWHERE, "TMPDIR": "/tmp", "PATH": search}
    # A compiler behind ccache has nowhere to keep anything; objects are kept outside.
    inside["CCACHE_DISABLE"] = "1"
    try:
        done = run(words, variables=inside, timeout=timeout, on_line=on_line, check=check)
    except CommandError as err:
        raise CommandError(str(err), finished=_count_signals(err.finished)) from err
    return _count_signals(done)


def _count_signals(done: Finished) -> Finished:
    return replace(done, code=_SIGNALS - done.code) if done.code > _SIGNALS else done


def bubblewrap_arguments(view: View, cwd: Path) -> tuple[str, ...]:
    """Return what bubblewrap is told to show this view."""
    words = ["--unshare-user-try", "--unshare-ipc", "--unshare-pid", "--unshare-net"]
    words += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "builder"]
    words += ["--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in _system():
        target = _link(path)
        words += ["--symlink", target, path] if target else ["--ro-bind", path, path]
    option = {"read": "--ro-bind", "write": "--bind", "link": "--symlink"}
    words += [word for each in _mounts(view) for word in (option[each.kind], each.place, each.path)]
    if view.gpu:
        words += ["--ro-bind-try", "/sys", "/sys"]
        words += [word for path in _GPU_DEVICES for word in ("--dev-bind-try", path, path)]
    return (*words, "--remount-ro", "/", "--chdir", str(cwd))


_UNSHARE = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child")

_SCRIPT = r"""set -e
read_only() {
  mount -o remount,bind,ro "$1" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$1" \
    2>/dev/null || mount -o remount,bind,ro,nosuid,nodev,noexec "$1"
}
place() { if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; touch "$2"; fi; }
show() { place "$1" "$root$2"; mount --rbind "$1" "$root$2"; read_only "$root$2"; }
share() { place "$1" "$root$2"; mount --rbind "$1" "$root$2"; }
link() { mkdir -p "$(dirname "$root$2")"; ln -s "$1" "$root$2"; }
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$root"
mkdir -p "$root/proc" "$root/dev/shm" "$root/tmp"
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/tmp"
mount -t tmpfs none "$root/dev/shm"
"""


def unshare_script(view: View, root: Path) -> str:
    """Return the shell script that builds this view at ``root`` and starts a program in it.

    Its arguments are the directory to start in, and the program.
    """
    lines = [f"root={shlex.quote(str(root))}", _SCRIPT.rstrip()]
    for path in _system():
        target = _link(path)
        lines.append(shlex.join(["link", target, path] if target else ["show", path, path]))
    lines += [f"share /dev/{name} /dev/{name}" for name in _DEVICE_FILES]
    verb = {"read": "show", "write": "share", "link": "link"}
    lines += [shlex.join([verb[each.kind], each.place, each.path]) for each in _mounts(view)]
    if view.gpu:
        lines += ["show /sys /sys"]
        lines += [f"share {path} {path}" for path in _GPU_DEVICES if Path(path).exists()]
    lines.append('mount -o remount,ro "$root"')
    lines.append("""exec chroot "$root" /bin/sh -c 'cd "$1"; shift; "$@"; exit "$?"' sh "$@\"""")
    return "\n".join(lines)


def find_installation(programs: Iterable[Path]) -> list[Path]:
    """Return what must be seen for compilers to run: their installation, or their files alone.

    A compiler in ``<prefix>/bin`` finds its parts by its own place.
    """
    found: list[Path] = []
    for program in programs:
        for place in (program, program.resolve()):
            prefix = place.parent.parent
            parts = [prefix / name for name in ("lib/gcc", "libexec/gcc", "lib64/gcc", "lib/clang")]
            own = place.parent.name == "bin" and any(part.is_dir() for part in parts)
            found.append(prefix if own else place)
    return found


def _system() -> list[str]:
    return [path for path in _SYSTEM if os.path.lexists(path)]


def _link(path: str) -> str | None:
    """Return where a system directory that is a link leads, or None."""
    return str(Path(path).readlink()) if Path(path).is_symlink() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mount:
    """One thing of a view: where it is outside, its path inside, and how it is seen."""

    place: str
    path: str
    kind: Literal["read", "write", "link"]


def _mounts(view: View) -> list[_Mount]:
    """Return what a view is made of, outer directories first.

    What is named through a link stays a link: compilers find their parts by where it leads.
    """
    named: list[_Mount] = []
    kinds: tuple[tuple[tuple[Path, ...], Literal["read", "write"]], ...]
    kinds = ((view.readable, "read"), (view.writable, "write"))
    for paths, kind in kinds:
        for path in map(Path.absolute, paths):
            place, real = str(path), str(path.resolve())
            named.append(_Mount(place=real, path=real, kind=kind))
            last: Literal["link", "read", "write"] = "link" if path.is_symlink() else kind
            named.append(_Mount(place=real, path=place, kind=last))
    found: dict[str, _Mount] = {}
    for each in sorted(named, key=lambda each: (len(Path(each.path).parts), each.path)):
        if each.kind == "write" or not _is_covered(Path(each.path), found):
            found[each.path] = each
    return list(found.values())


def _is_covered(path: Path, found: Mapping[str, _Mount]) -> bool:
    """Say whether a path is seen already: it lies in the system, or under what is mounted."""
    above = {str(each) for each in (path, *path.parents)}
    return not above.isdisjoint(_SYSTEM) or not above.isdisjoint(found)
