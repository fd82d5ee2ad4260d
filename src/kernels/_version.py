"""The version of the distribution, readable without its metadata."""

# Libraries compare the version of the distribution called "kernels" with the
# client API they were written for (transformers 5.24 asks for >=0.18.2,<0.19);
# the number says which API that is, the post-release says that it is ours.
__version__ = "0.18.2.post1"
