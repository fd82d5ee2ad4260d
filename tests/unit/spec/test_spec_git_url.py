import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.git_url import normalize_git_url


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/acme/relu",
        "http://example.org:8080/acme/relu.git",
        "https://example.org",
        "ssh://git@example.org:22/acme/relu",
        "git://example.org/acme/relu",
        "git+ssh://git@example.org/acme/relu",
        "git+https://example.org/acme/relu?ref=main#x",
        "git+http://example.org/acme/relu",
    ],
)
def test_urls_over_known_schemes_stay_as_they_are(url):
    assert normalize_git_url(url) == url


@pytest.mark.parametrize("path", ["acme/relu", "/acme/relu"])
def test_the_form_of_scp_becomes_a_url(path):
    assert normalize_git_url(f"git@example.org:{path}") == "ssh://git@example.org/acme/relu"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "relu",
            "/srv/relu",
            "../relu",
            "C:\\relu",
            "host:acme/relu",
            "https://",
            "https:///x",
        ),
        *("file:///srv/x", "ftp://example.org/x", "git+file:///x", "git+git://example.org/x"),
        *("https://example.org/a b", "https://example.org/\n", "javascript:alert(1)", "git@host:"),
        *("HTTPS://example.org/x", "git@host:22:x", "git@h\u00f6st:x"),
        *("https://example.org/\x1b[31m", "https://example.org/\u202ex", "git@host:x\u00a0y"),
    ],
)
def test_anything_else_is_no_git_url(url):
    assert normalize_git_url(url) is None


@given(st.text())
def test_what_is_accepted_stays_as_it_became(text):
    url = normalize_git_url(text)
    assert url is None or normalize_git_url(url) == url
