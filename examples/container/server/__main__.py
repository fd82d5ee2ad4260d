"""Shows what the image can do."""

from server import activation

print(activation.__file__)
print(*sorted(name for name in dir(activation) if not name.startswith("_")))
