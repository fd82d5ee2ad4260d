"""``build.toml``: what a kernel project says of itself."""
