"""Lays out CUDA 12.4 as NVIDIA's installer does and as Debian does, for the tests of toolkits that users bring.

No wheel has a compiler of CUDA 12. Debian's packages have, but for the headers of the runtime, which come with
its libraries in one of a gigabyte there; those are in two wheels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import debian
from filelock import FileLock
from peers import PeerUnavailableError, open_cache

VERSION, RELEASE = "12.4", "12.4.131"
SUITE, SECTIONS = "trixie", "main non-free"

# Debian's packages, by name: version, size in bytes, sha256.
PACKAGES = {
    "nvidia-cuda-toolkit": (
        "12.4.131~12.4.1-2",
        87240108,
        "cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319",
    ),
    "libcudart12": (
        "12.4.127~12.4.1-2",
        176216,
        "361b3721cf84bf068e111ff013c819de61cb475268b0d38db99839471f1b4130",
    ),
    "libcu++-dev": (
        "2.3.2-2",
        765284,
        "30e911c1909265591b5ea793df0e49e56bed631238b68b3e75c97590c4985686",
    ),
    "libcub-dev": (
        "2.3.2-2",
        290612,
        "4a7e7c24ef2994140e47dba59507db60e281f968f17c18cf1cadc9c27c17c26b",
    ),
    "libthrust-dev": (
        "2.3.2-2",
        419852,
        "61fe44b65834efad9b079452ebec7396d4b37712d251421f4218b3bc652a3147",
    ),
}
WHEELS = {
    "nvidia-cuda-runtime-cu12==12.4.127": "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5",
    "nvidia-cuda-nvcc-cu12==12.4.131": "e4c9a35435c3b0e36c6397c5696334c9ea6650e524736cbd1c5d345ea099bb04",
}
_PROGRAMS = ("bin2c", "cudafe++", "cuobjdump", "fatbinary", "nvlink", "ptxas")
# What NVIDIA's own nvcc.profile says, in its own syntax; Debian has changed it.
_PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/$(_NVVM_BRANCH_)/libdevice
LD_LIBRARY_PATH += $(TOP)/lib:
PATH += $(TOP)/$(_NVVM_BRANCH_)/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/$(_TARGET_DIR_)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs" "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OlderCuda:
    """CUDA 12.4, twice.

    Attributes:
        home: the directory that an installer makes: ``bin``, ``include``, ``lib64``, ``nvvm``.
        root: a directory that holds what Debian's packages put into ``/usr`` and ``/etc``.
    """

    home: Path
    root: Path


def fetch() -> OlderCuda:
    """Return the toolkit; the first call on a machine takes half a minute and 120 MB of network.

    It stays in ``$XDG_CACHE_HOME/kernels-tests``.

    Raises:
        PeerUnavailableError: it cannot be had here; says why.
    """
    cache = open_cache()
    place = cache / f"cuda-{RELEASE}"
    with FileLock(f"{place}.lock"):
        if not place.exists():
            work = cache / f"cuda-{RELEASE}-new"
            shutil.rmtree(work, ignore_errors=True)
            _fetch_debian(work / "fetched", work / "tree" / "root")
            _fetch_headers(work / "fetched", work / "tree" / "root" / "usr" / "include")
            _lay_out_home(work / "tree" / "root", work / "tree" / "home")
            (work / "tree").rename(place)
            shutil.rmtree(work)
    return OlderCuda(home=place / "home", root=place / "root")


def _fetch_debian(fetched: Path, root: Path) -> None:
    """Fetch and unpack Debian's packages."""
    wanted = [f"{name}={version}" for name, (version, _, _) in PACKAGES.items()]
    debian.fetch_packages(fetched, SUITE, SECTIONS, wanted)
    root.mkdir(parents=True)
    for name, (_, size, sha256) in PACKAGES.items():
        [package] = fetched.glob(f"{name}_*.deb")
        data = package.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if (len(data), found) != (size, sha256):
            raise PeerUnavailableError(
                f"{package.name}: {len(data)} bytes, sha256 {found}; expected {size}, {sha256}"
            )
        debian.run(["dpkg-deb", "-x", str(package), str(root)], fetched)
    # Half of the size, and no compiler calls it.
    shutil.rmtree(root / "usr" / "lib" / "nvidia-cuda-toolkit" / "compute-sanitizer")
    (root / "usr" / "bin" / "nvdisasm").unlink()


def _fetch_headers(fetched: Path, include: Path) -> None:
    """Fetch the wheels, and unpack their headers."""
    listed = fetched / "requirements.txt"
    listed.write_text(
        "".join(f"{name} --hash=sha256:{sha256}\n" for name, sha256 in WHEELS.items())
    )
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-input", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "-d", str(fetched), "-r", str(listed)]
    debian.run(command, fetched)
    for wheel in sorted(fetched.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                _, found, inner = name.partition("/include/")
                if name.startswith("nvidia/cuda_") and found and inner.endswith((".h", ".hpp")):
                    (include / inner).parent.mkdir(parents=True, exist_ok=True)
                    (include / inner).write_bytes(archive.read(name))


def _lay_out_home(root: Path, home: Path) -> None:
    """Give the files of Debian's packages the places that they have in NVIDIA's own tree."""
    usr = root / "usr"
    own = usr / "lib" / "nvidia-cuda-toolkit"
    target = home / "targets" / "x86_64-linux"
    (home / "nvvm" / "bin").mkdir(parents=True)
    (home / "bin").mkdir()
    target.mkdir(parents=True)
    for name in _PROGRAMS:
        os.link(usr / "bin" / name, home / "bin" / name)
    os.link(own / "bin" / "nvcc", home / "bin" / "nvcc")
    os.link(own / "bin" / "cicc", home / "nvvm" / "bin" / "cicc")
    (home / "bin" / "nvcc.profile").write_text(_PROFILE)
    shutil.copytree(own / "bin" / "crt", home / "bin" / "crt")
    shutil.copytree(own / "libdevice", home / "nvvm" / "libdevice")
    shutil.copytree(usr / "include", target / "include", copy_function=os.link)
    shutil.copytree(usr / "lib" / "x86_64-linux-gnu", target / "lib", symlinks=True)
    (home / "include").symlink_to("targets/x86_64-linux/include")
    (home / "lib64").symlink_to("targets/x86_64-linux/lib")
