"""What memory that nobody has written holds while the gate runs."""

# What a tensor of the caller's is filled with where it cannot hold NaN.
POISON_BYTE = 0x5B
# What malloc hands out; its tunables are set so for the process of the gate.
MALLOC_BYTE = 0x7F
FRESH_BYTES = (POISON_BYTE, MALLOC_BYTE)
