from pathlib import Path

from kernel_builder.settings import read_settings


def test_the_cache_follows_xdg_then_home() -> None:
    assert read_settings({"XDG_CACHE_HOME": "/c", "HOME": "/h"}).cache == Path("/c/kernel-builder")
    assert read_settings({"HOME": "/h"}).cache == Path("/h/.cache/kernel-builder")
    for ignored in ("", "relative/path"):
        settings = read_settings({"XDG_CACHE_HOME": ignored, "HOME": "/h"})
        assert settings.cache == Path("/h/.cache/kernel-builder")


def test_programs_do_not_see_what_would_change_a_build() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/h",
        "CPATH": "/evil",
        "LC_ALL": "de_DE",
        "TZ": "Asia/Seoul",
    }
    variables = read_settings(environ).variables
    assert "CPATH" not in variables
    assert variables["LC_ALL"] == "C"
    assert variables["TZ"] == "UTC"
    assert variables["PATH"] == "/bin"


def test_cxx_names_the_compiler() -> None:
    assert read_settings({"CXX": "clang++"}).cxx == "clang++"
    assert read_settings({"CXX": ""}).cxx is None


def test_the_hubs_to_publish_to() -> None:
    settings = read_settings({"KERNELS_HUB": "file:///srv", "HF_ENDPOINT": "http://localhost:1/"})
    assert (settings.hubs, settings.endpoint) == ("file:///srv", "http://localhost:1")
    assert read_settings({"HOME": "/h"}).hubs is None
    assert read_settings({"HOME": "/h"}).endpoint.startswith("https://")
