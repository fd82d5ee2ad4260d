"""A project's build as files of other tools: CMake and setuptools, from the plan of the build itself."""
