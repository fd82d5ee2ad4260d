"""A library that loads kernels by the lock it was built with."""

from kernels import load_kernel

activation = load_kernel("kernels-community/activation")
