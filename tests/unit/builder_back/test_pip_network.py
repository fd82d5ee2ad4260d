"""How the network is reached where pip's own settings say how."""

from __future__ import annotations

from pathlib import Path
from urllib.request import ProxyHandler

import pytest

from kernel_builder.toolchain import pip_network
from kernel_builder.toolchain.pip_network import (
    PipNetwork,
    choose_proxies,
    open_like_pip,
    parse_pip_network,
)


@pytest.mark.parametrize(
    ("variables", "stated", "expected"),
    [
        ({"HTTPS_PROXY": "http://a:1", "no_proxy": "b"}, None, {"https": "http://a:1"}),
        (
            {"all_proxy": "a:1", "http_proxy": ""},
            None,
            {"http": "http://a:1", "https": "http://a:1"},
        ),
        (
            {"ALL_PROXY": "socks5://s:1", "http_proxy": "http://a:1"},
            None,
            {"http": "http://a:1", "https": "socks5://s:1"},
        ),
        (
            {"https_proxy": "http://a:1"},
            "https://p:1",
            {"http": "https://p:1", "https": "https://p:1"},
        ),
        ({}, "p:1", {"http": "http://p:1", "https": "http://p:1"}),
        ({}, None, {}),
    ],
)
def test_proxies_are_those_of_pip(
    variables: dict[str, str], stated: str | None, expected: dict[str, str]
) -> None:
    assert choose_proxies(variables, stated) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", PipNetwork()),
        (
            "global.proxy='http://a:1'\nglobal.cert='/ca.pem'\nglobal.client-cert='/own.pem'\n",
            PipNetwork(proxy="http://a:1", cert="/ca.pem", client_cert="/own.pem"),
        ),
        # What is said of downloads comes before what is said of all, and variables before both.
        ("download.proxy='b:1'\nglobal.proxy='a:1'\n", PipNetwork(proxy="b:1")),
        (":env:.proxy='c:1'\ndownload.proxy='b:1'\n", PipNetwork(proxy="c:1")),
        (":env:.proxy=''\nglobal.proxy='a:1'\n", PipNetwork(proxy="a:1")),
        ('global.cert="/it\'s/ca.pem"\n', PipNetwork(cert="/it's/ca.pem")),
        # Other commands, other settings, several lines in one, and what pip says beside them.
        ("install.proxy='a:1'\nglobal.trusted-host='a'\nuser.proxy='a:1'\n", PipNetwork()),
        ("global.find-links='\\na\\nglobal.proxy=1'\nWARNING: x\n", PipNetwork()),
        ("global.proxy='a:1\nglobal.cert='b' + 'c'\nglobal.proxy=a:1\n", PipNetwork()),
    ],
)
def test_settings_are_read_as_pip_lists_them(text: str, expected: PipNetwork) -> None:
    assert parse_pip_network(text) == expected


def test_pip_itself_is_asked(tmp_path: Path) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text("[global]\nproxy = http://a:1\n[download]\nclient_cert = /own.pem\n")
    found = pip_network.read_pip_network({"PIP_CONFIG_FILE": str(conf), "PIP_CERT": "/ca.pem"})
    assert found == PipNetwork(proxy="http://a:1", cert="/ca.pem", client_cert="/own.pem")


def be(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    found = PipNetwork(**settings)
    monkeypatch.setattr(pip_network, "read_pip_network", lambda _: found)


def test_the_proxy_of_a_file_is_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, proxy="http://p:1")
    opener = open_like_pip({"https_proxy": "http://a:1"})
    (handler,) = (each for each in opener.handlers if isinstance(each, ProxyHandler))
    assert handler.proxies == {"http": "http://p:1", "https": "http://p:1"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"proxy": "socks5://me:secret@p:1"}, r"another kind than HTTP \(socks5\)"),
        ({"cert": "{here}/none.pem"}, r"certificates .*none\.pem: "),
        ({"cert": "{here}/odd.pem"}, r"certificates .*odd\.pem: "),
        ({"client_cert": "{here}/odd.pem"}, r"certificate .*odd\.pem: "),
    ],
)
def test_ways_that_cannot_be_gone_here_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    (tmp_path / "odd.pem").write_text("odd")
    be(monkeypatch, **{name: text.format(here=tmp_path) for name, text in settings.items()})
    with pytest.raises(ValueError, match=said) as caught:
        open_like_pip({})
    assert "secret" not in str(caught.value)


def test_a_directory_of_certificates_and_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "certs").mkdir()
    be(monkeypatch, cert="~/certs")
    assert open_like_pip({"SSL_CERT_FILE": "/nowhere.pem"}).handlers


def test_certificates_are_chosen_in_the_order_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, cert="/second.pem")
    variables = {"SSL_CERT_FILE": "/third.pem"}
    with pytest.raises(ValueError, match=r"certificates /second\.pem"):
        open_like_pip(variables)
    with pytest.raises(ValueError, match=r"certificates /first\.pem"):
        open_like_pip({**variables, "CURL_CA_BUNDLE": "/first.pem"})
    with pytest.raises(ValueError, match=r"certificates /first\.pem"):
        open_like_pip(
            {**variables, "CURL_CA_BUNDLE": "/later.pem", "REQUESTS_CA_BUNDLE": "/first.pem"}
        )
    be(monkeypatch)
    with pytest.raises(ValueError, match=r"certificates /third\.pem"):
        open_like_pip(variables)
