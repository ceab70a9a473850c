"""safetensors by the book, without our code: prints the tensors of argv[1], and writes a file argv[2].

https://github.com/huggingface/safetensors#format
"""
import json
import struct
import sys
import warnings

warnings.filterwarnings("ignore")  # torch's about NumPy, which the tests do not need

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}

with open(sys.argv[1], "rb") as file:
    content = file.read()
(header_size,) = struct.unpack_from("<Q", content)
header = json.loads(content[8 : 8 + header_size])
data = content[8 + header_size :]
assert header_size % 8 == 0
assert sum(item["data_offsets"][1] - item["data_offsets"][0] for item in header.values()) == len(data)
for name in ("f32", "bf16", "bool", "i64", "u8"):
    item = header[name]
    begin, end = item["data_offsets"]
    dtype = DTYPES[item["dtype"]]
    assert begin % dtype.itemsize == 0, "aligned"
    tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(item["shape"])
    print(name, dtype, tensor.tolist())

header = json.dumps({
    "__metadata__": {"format": "pt"},
    "x": {"dtype": "F64", "shape": [3, 2], "data_offsets": [0, 48]},
    "y": {"dtype": "F16", "shape": [], "data_offsets": [48, 50]},
}).encode()
with open(sys.argv[2], "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + struct.pack("<6d", *range(6)) + struct.pack("<e", 1.5))
