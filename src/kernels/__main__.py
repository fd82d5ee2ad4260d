"""``python -m kernels`` is ``kernels``."""

from kernels.cli import main

if __name__ == "__main__":
    main()
