"""Headers of a torch release from a package index: in parts, whole, out of a folder; and a real one.

Time budget: 60 s. The toy needs this machine alone; the last tests need a package index with torch.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import toy_torch
from gateway import make_certificate

from kernel_builder.errors import ToolchainError, ToolchainUnavailableError
from kernel_builder.settings import Settings
from kernel_builder.toolchain.exports import read_exports
from kernel_builder.toolchain.torch import TorchInstall, get_torch
from kernel_builder.toolchain.torch_headers import fetch_torch_headers, read_pinned_exports
from kernel_builder.toolchain.torch_releases import (
    PinnedTorch,
    parse_release,
    read_torch_releases,
)
from kernel_spec.binary import read_elf
from kernel_spec.version import MajorMinor

OF_NETWORK = re.compile(r"PIP_|\w+_proxy|SSL_CERT_|(REQUESTS|CURL)_CA_BUNDLE", re.IGNORECASE)
_FETCH = """
import json, os, sys
from pathlib import Path
from kernel_builder.toolchain.torch_headers import fetch_torch_headers
from kernel_builder.toolchain.torch_releases import parse_release
pinned = parse_release(json.loads(sys.argv[2]))
torch = fetch_torch_headers(pinned, store=Path(sys.argv[1]), variables=dict(os.environ))
print(torch.root)
"""

_NODE = """
#include <torch/csrc/autograd/custom_function.h>
struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    return input.add(input);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    return {gradients[0].add(gradients[0])};
  }
};
at::Tensor twice(const at::Tensor& input) { return Twice::apply(input); }
"""


class Index:
    """A page with one wheel on it, whose server reads ranges or does not, and counts the bytes of those."""

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.reads_ranges = True
        self.refuses = 0
        self.redirects = False
        self.cuts = 0
        self.sent = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body, status, headers = self._page(), 200, {"Content-Type": "text/html"}
        if request.path.endswith(".whl"):
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range") or "")
            body, headers = self.wheel, {}
            if asked is not None and self.redirects and not request.path.startswith("/moved"):
                body, status, headers = b"", 302, {"Location": f"/moved/{toy_torch.NAME}"}
            elif asked is not None and self.refuses:
                body, status = b"no", self.refuses
            elif asked is not None and self.reads_ranges:
                first, last = int(asked[1]), int(asked[2])
                body, status = self.wheel[first : last + 1], 206
                headers["Content-Range"] = f"bytes {first}-{last}/{len(self.wheel)}"
            self.begun.set()
            self.go_on.wait(60)
        request.send_response(status)
        for name, text in headers.items():
            request.send_header(name, text)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if status == 206 and self.cuts > 0:
            self.cuts -= 1
            body = body[: len(body) // 2]
        self.sent += len(body) if status == 206 else 0
        request.wfile.write(body)

    def _page(self) -> bytes:
        return f'<!doctype html><a href="{toy_torch.NAME}">{toy_torch.NAME}</a>'.encode()

    @property
    def variables(self) -> dict[str, str]:
        return for_pip(self.url)


def for_pip(links: str) -> dict[str, str]:
    return {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": links,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_TRUSTED_HOST": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_torch.make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def row(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return toy_torch.describe(wheel, tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="module")
def toy(row: dict[str, object]) -> PinnedTorch:
    return parse_release(row)


@pytest.fixture
def index(wheel: Path) -> Iterator[Index]:
    with serve(wheel) as found:
        yield found


@contextmanager
def serve(wheel: Path, context: ssl.SSLContext | None = None) -> Iterator[Index]:
    """Serve the wheel, by TLS where there is a context; as a proxy, too, for a host of any name."""
    found = Index(wheel.read_bytes())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(ConnectionError):  # whoever asked has heard enough
                found.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    scheme = "http" if context is None else "https"
    found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/"
    try:
        yield found
    finally:
        found.go_on.set()
        server.shutdown()
        server.server_close()


def see_that_it_is_whole(torch: TorchInstall) -> None:
    assert torch.build.release == MajorMinor(2, 11)
    for path, text in toy_torch.HEADERS.items():
        assert (torch.root / path.removeprefix("torch/")).read_text() == text
    expected = {name for names in toy_torch.EXPORTS.values() for name in names}
    assert read_pinned_exports(torch) == expected
    assert {path.name for path in torch.root.iterdir()} == {"include", "version.py", "exports.txt"}


def list_left(store: Path) -> list[str]:
    """What lies in a store beside locks."""
    return [path.name for path in store.iterdir() if path.suffix != ".lock"]


def test_parts_are_all_that_is_fetched(index: Index, toy: PinnedTorch, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    torch = fetch_torch_headers(
        toy, store=tmp_path, variables=index.variables, on_fetch=lambda *each: told.append(each)
    )
    see_that_it_is_whole(torch)
    size = sum(span.length for span in toy.spans)
    assert size < len(index.wheel) / 2
    assert index.sent == size
    assert ("fetching torch 2.11.0", size, size) in told
    assert not any("whole" in what for what, *_ in told)
    assert list_left(tmp_path) == [toy.key]


@pytest.mark.parametrize("trouble", ["redirect", "cut", "no ranges", "login", "gone"])
def test_a_server_that_is_in_trouble(
    index: Index, toy: PinnedTorch, tmp_path: Path, trouble: str
) -> None:
    told: list[str] = []
    index.redirects = trouble == "redirect"
    index.cuts = 2 if trouble == "cut" else 0
    index.reads_ranges = trouble != "no ranges"
    index.refuses = {"login": 401, "gone": 404}.get(trouble, 0)
    torch = fetch_torch_headers(
        toy,
        store=tmp_path,
        variables=index.variables,
        on_fetch=lambda what, *_: told.append(what),
    )
    see_that_it_is_whole(torch)
    whole = [text for text in told if "is fetched whole" in text]
    assert bool(whole) == (trouble in ("no ranges", "login", "gone")), told
    assert list_left(tmp_path) == [toy.key]


def test_a_folder_of_wheels(wheel: Path, toy: PinnedTorch, tmp_path: Path) -> None:
    torch = fetch_torch_headers(toy, store=tmp_path, variables=for_pip(str(wheel.parent)))
    see_that_it_is_whole(torch)


def test_a_wheel_of_a_local_version_is_not_taken(
    wheel: Path, toy: PinnedTorch, tmp_path: Path
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    shutil.copy(wheel, folder / toy_torch.NAME.replace("2.11.0", "2.11.0+cpu"))
    shutil.copy(wheel, folder)
    torch = fetch_torch_headers(toy, store=tmp_path / "store", variables=for_pip(str(folder)))
    see_that_it_is_whole(torch)


@pytest.mark.parametrize("whole", [False, True])
def test_a_changed_byte_is_refused(
    index: Index, toy: PinnedTorch, tmp_path: Path, whole: bool
) -> None:
    index.reads_ranges = not whole
    place = toy.headers[0] + 40
    index.wheel = index.wheel[:place] + b"?" + index.wheel[place + 1 :]
    with pytest.raises(ToolchainError, match=r"torch 2\.11\.0 .*(sha256|HASHES)") as caught:
        fetch_torch_headers(toy, store=tmp_path, variables=index.variables)
    assert not isinstance(caught.value, ToolchainUnavailableError)
    assert list_left(tmp_path) == []


def test_a_version_that_no_index_has(toy: PinnedTorch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ToolchainUnavailableError, match=r"No matching distribution.*PIP_INDEX_URL"):
        fetch_torch_headers(
            toy, store=tmp_path / "store", variables=for_pip(str(tmp_path / "empty"))
        )


def test_no_password_is_told(index: Index, toy: PinnedTorch, tmp_path: Path) -> None:
    told: list[str] = []
    url = index.url.replace("://", "://me:secret@")
    torch = fetch_torch_headers(
        toy, store=tmp_path, variables=for_pip(url), on_fetch=lambda what, *_: told.append(what)
    )
    see_that_it_is_whole(torch)
    assert not any("secret" in text for text in told)


def configure(place: Path, links: str, *lines: str) -> dict[str, str]:
    """Give pip a file of settings, and no variable that says anything of the network."""
    conf = place / "pip.conf"
    text = "\n".join(("[global]", "no-index = true", f"find-links = {links}", *lines, ""))
    conf.write_text(text)
    mute = {name: text for name, text in os.environ.items() if not OF_NETWORK.match(name)}
    return {**mute, "PIP_CONFIG_FILE": str(conf), "PIP_NO_CACHE_DIR": "1"}


def fetch_told(toy: PinnedTorch, store: Path, variables: dict[str, str]) -> list[str]:
    """Fetch the toy, and return what was told of it."""
    told: list[str] = []
    torch = fetch_torch_headers(
        toy, store=store, variables=variables, on_fetch=lambda what, *_: told.append(what)
    )
    see_that_it_is_whole(torch)
    return told


def test_a_proxy_that_only_a_file_of_pip_names(
    index: Index, toy: PinnedTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    lines = (f"proxy = {index.url}", "trusted-host = index.invalid")
    variables = configure(tmp_path, "http://index.invalid/", *lines)
    told = fetch_told(toy, tmp_path / "store", variables)
    assert not any("whole" in text for text in told), told
    assert index.sent == sum(span.length for span in toy.spans)


@pytest.mark.parametrize("shows_own", [False, True])
def test_certificates_that_only_a_file_of_pip_names(
    wheel: Path, toy: PinnedTorch, tmp_path: Path, shows_own: bool
) -> None:
    context = make_certificate(tmp_path)
    lines = [f"cert = {tmp_path / 'ca.pem'}"]
    if shows_own:
        context.load_verify_locations(tmp_path / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        own = tmp_path / "own.pem"
        own.write_text((tmp_path / "hub.pem").read_text() + (tmp_path / "hub.key").read_text())
        lines.append(f"client-cert = {own}")
    with serve(wheel, context) as index:
        told = fetch_told(toy, tmp_path / "store", configure(tmp_path, index.url, *lines))
        assert not any("whole" in text for text in told), told
        assert index.sent == sum(span.length for span in toy.spans)


def test_a_host_that_pip_is_told_to_trust_is_pips_alone(
    wheel: Path, toy: PinnedTorch, tmp_path: Path
) -> None:
    """What is read here is read from a host that proves its name; pip downloads the wheel, whose hash is pinned."""
    with serve(wheel, make_certificate(tmp_path)) as index:
        variables = configure(tmp_path, index.url, "trusted-host = 127.0.0.1")
        told = fetch_told(toy, tmp_path / "store", variables)
        assert [text for text in told if "is fetched whole" in text]
        assert index.sent == 0


@pytest.fixture
def start(
    row: dict[str, object], index: Index, tmp_path: Path
) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a process that fetches the toy."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _FETCH, str(tmp_path), json.dumps(row)]
        process = subprocess.Popen(command, env=index.variables, text=True, stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_processes_share_one_fetch(
    start: Callable[[], subprocess.Popen[str]], index: Index, toy: PinnedTorch, tmp_path: Path
) -> None:
    index.go_on.clear()
    processes = [start() for _ in range(3)]
    assert index.begun.wait(60)
    time.sleep(0.5)  # the others wait for the lock meanwhile
    index.go_on.set()
    said = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert said == [str(tmp_path / toy.key)] * 3
    assert index.sent == sum(span.length for span in toy.spans)
    assert list_left(tmp_path) == [toy.key]


def test_a_killed_fetch_leaves_nothing_half_made(
    start: Callable[[], subprocess.Popen[str]], index: Index, toy: PinnedTorch, tmp_path: Path
) -> None:
    index.go_on.clear()
    process = start()
    assert index.begun.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert toy.key not in list_left(tmp_path)
    index.go_on.set()
    assert start().communicate(timeout=60)[0].strip() == str(tmp_path / toy.key)
    assert list_left(tmp_path) == [toy.key]


@pytest.fixture(scope="module")
def real(settings: Settings) -> TorchInstall:
    """The release that is installed, out of the wheel that is pinned."""
    release = get_torch().build.release
    found = [each for each in read_torch_releases(platform.machine()) if each.release == release]
    if not found:
        pytest.skip(f"torch {release} is not pinned for {platform.machine()}")
    store = settings.cache / "toolchains"
    try:
        return fetch_torch_headers(found[0], store=store, variables=settings.for_pip)
    except ToolchainUnavailableError as err:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(err))


@pytest.fixture(scope="module")
def node(real: TorchInstall, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An object with a node of autograd, compiled with nothing of the installed torch."""
    place = tmp_path_factory.mktemp("node")
    (place / "node.cpp").write_text(_NODE)
    include = [f"-isystem{directory}" for directory in real.include_dirs]
    command = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", *include]
    subprocess.run([*command, "node.cpp", "-o", "node.so"], cwd=place, check=True)
    return place / "node.so"


def test_a_node_is_compiled_against_a_pinned_release(real: TorchInstall, node: Path) -> None:
    assert real.build.release == get_torch().build.release
    asked = {each.name for each in read_elf(node).symbols if not each.defined}
    assert any(name.startswith("_ZN5torch8autograd") for name in asked)


def test_the_pinned_exports_answer_for_the_installed_torch(
    real: TorchInstall, node: Path, tmp_path: Path
) -> None:
    """Of what the object asks for, the pinned list has all that the installed libraries have."""
    asked = {each.name for each in read_elf(node).symbols if not each.defined}
    of_torch = asked & read_exports(get_torch(), tmp_path)
    assert len(of_torch) > 20
    assert of_torch <= read_pinned_exports(real)
