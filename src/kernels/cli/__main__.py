"""``python -m kernels.cli`` is the command ``kernels``."""

from kernels.cli import main

main()
