"""Says whether img2gray is registered with torch and computes what it should."""

import torch
import img2gray
from img2gray._ops import ops

device = "cuda" if torch.cuda.is_available() else "cpu"
picture = torch.randint(0, 256, (48, 65, 3), dtype=torch.uint8, device=device)
gray = img2gray.img2gray(picture)

expected = (picture.int() * torch.tensor([21, 72, 7], device=device)).sum(-1) // 100
torch.testing.assert_close(gray, expected.to(torch.uint8), rtol=0, atol=0)
print(f"img2gray works on {device}: {tuple(picture.shape)} -> {tuple(gray.shape)} {gray.dtype}")
print(f"registered: {ops.img2gray.default}")

compiled = torch.compile(img2gray.img2gray, backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(picture), gray)
print("one graph under torch.compile")
