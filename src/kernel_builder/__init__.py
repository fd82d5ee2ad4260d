"""Build kernels: from ``build.toml`` to checked, packaged variants."""
