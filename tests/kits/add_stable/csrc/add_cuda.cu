// Compiled where nvcc can be had.
