"""What the C++ side reads, field for field as in native/types.h. Holds addresses only: whoever
fills one keeps the tensors alive."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from typing import ClassVar, TypeAlias

_Fields: TypeAlias = list[tuple[str, type]]

BF16, INT8, INT4, FLOAT32 = 0, 1, 2, 3


class Weight(Structure):
    _fields_: ClassVar[_Fields] = [
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("kind", c_int32),
        ("group", c_int32),
    ]


class Layer(Structure):
    _fields_: ClassVar[_Fields] = [
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        *((name, Weight) for name in ("query", "key", "value", "output", "gate", "up", "down")),
        ("window", c_int64),
    ]


class Model(Structure):
    _fields_: ClassVar[_Fields] = [
        ("layers", POINTER(Layer)),
        ("norm", c_void_p),
        ("frequency", c_void_p),
        ("embedding", Weight),
        ("head", Weight),
        *((name, c_int64) for name in ("layer_count", "hidden", "heads", "kv_heads")),
        *((name, c_int64) for name in ("head_size", "mlp")),
        ("epsilon", c_float),
        ("rotary_scale", c_float),
    ]


class Cache(Structure):
    _fields_: ClassVar[_Fields] = [
        ("keys", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
        ("block_stride", c_int64),
        ("token_stride", c_int64),
        ("block_tokens", c_int64),
        ("kind", c_int32),
    ]


class Batch(Structure):
    _fields_: ClassVar[_Fields] = [
        ("token", c_void_p),
        ("x", c_void_p),
        ("position", c_void_p),
        ("sequence", c_void_p),
        ("table", c_void_p),
        ("table_rows", c_int64),
        ("table_width", c_int64),
        ("rows", c_int64),
        ("wanted", c_void_p),
        ("wanted_count", c_int64),
        ("logits", c_void_p),
    ]


def declare(library: ctypes.CDLL) -> None:
    """Tells ctypes the exported functions' types."""
    integer, address = ctypes.c_int, c_void_p
    types: dict[str, tuple[type | None, list[type]]] = {
        "noidle_level_count": (integer, []),
        "noidle_level_name": (ctypes.c_char_p, [integer]),
        "noidle_level_here": (integer, [integer]),
        "noidle_linear": (
            None,
            [integer, POINTER(Weight), address, c_int64, address, integer],
        ),
        "noidle_dequantize": (None, [integer, POINTER(Weight), address, integer]),
        "noidle_quantize": (
            None,
            [integer, POINTER(Weight), address, address, address, integer],
        ),
        "noidle_read": (c_float, [integer, address, c_int64, integer]),
        "noidle_scratch_bytes": (c_int64, [integer, POINTER(Model), c_int64, integer]),
        "noidle_fault": (integer, [POINTER(Batch), c_int64, c_int64, c_int64]),
        "noidle_step": (
            None,
            [integer, POINTER(Model), POINTER(Cache), POINTER(Batch), address, integer],
        ),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
