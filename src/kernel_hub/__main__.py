"""``python -m kernel_hub`` is ``kernel-hub``."""

from kernel_hub.cli import main

if __name__ == "__main__":
    main()
