// Compiled where hipcc can be had.
