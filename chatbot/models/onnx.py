"""Read the weights of an ONNX model into NumPy, without a runtime: tensors, and the layers that use them.

Only models of plain matrix products are supported. An ONNX file is a protocol buffer; field numbers are those of
`onnx.proto`. The file is untrusted: a length beyond its end raises `ValueError`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensor = NDArray[Any]

_TYPES = {1: "<f4", 3: "i1", 7: "<i8"}
"""`TensorProto.DataType`, of the tensors that are read; others are passed over."""
_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9
_INPUT, _OUTPUT, _OPERATOR = 1, 2, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Node(NamedTuple):
    """One operation of the graph, with the names of its inputs and outputs."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph(NamedTuple):
    """Tensors by name, mapped from the file, and the operations in their order."""

    tensors: dict[str, Tensor]
    nodes: tuple[Node, ...]
    file: mmap.mmap

    def release(self) -> None:
        """Give back the memory of what was read; what is read again comes from the file again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.file.madvise(mmap.MADV_DONTNEED)


def read_graph(path: Path) -> Graph:
    """Map the file. Raises `OSError` if it cannot be read and `ValueError` if it is damaged."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    for field, value in _message(data, 0, len(data)):
        if field == _GRAPH:
            for part, place in _message(data, *_span(value)):
                if part == _INITIALIZER:
                    tensors |= _tensor(data, *_span(place))
                elif part == _NODE:
                    nodes.append(_node(data, *_span(place)))
    return Graph(tensors, tuple(nodes), data)


def dequantized(graph: Graph, name: str) -> Tensor:
    """Return as float32 a matrix stored as int8 with a scale per row or column."""
    import numpy as np

    whole = graph.tensors[f"{name}_q"].astype(np.float32)
    whole *= graph.tensors[f"{name}_scale"]
    return whole


def layer_of_matrices(graph: Graph) -> dict[str, str]:
    """Map each matrix that a product takes to its layer, which the bias added to that product is named after."""
    products = {node.outputs[0]: node.inputs[1] for node in graph.nodes if node.operator == "MatMul"}
    layers = {}
    for node in graph.nodes:
        if node.operator == "Add":
            bias = next((name for name in node.inputs if name.endswith(".bias")), None)
            product = next((products[name] for name in node.inputs if name in products), None)
            if bias and product:
                layers[bias.removesuffix(".bias")] = product
    return layers


def _tensor(data: mmap.mmap, start: int, end: int) -> dict[str, Tensor]:
    import numpy as np

    shape: list[int] = []
    kind, name, raw = 0, "", (0, 0)
    for field, value in _message(data, start, end):
        if field == _DIMS and isinstance(value, int):
            shape.append(value)
        elif field == _DATA_TYPE and isinstance(value, int):
            kind = value
        elif field == _NAME:
            name = _text(data, value)
        elif field == _RAW_DATA:
            raw = _span(value)
    if kind not in _TYPES:
        return {}
    dtype = np.dtype(_TYPES[kind])
    flat = np.frombuffer(data, dtype, (raw[1] - raw[0]) // dtype.itemsize, raw[0])
    return {name: flat.reshape(shape)}


def _node(data: mmap.mmap, start: int, end: int) -> Node:
    inputs, outputs, operator = [], [], ""
    for field, value in _message(data, start, end):
        if field == _INPUT:
            inputs.append(_text(data, value))
        elif field == _OUTPUT:
            outputs.append(_text(data, value))
        elif field == _OPERATOR:
            operator = _text(data, value)
    return Node(operator, tuple(inputs), tuple(outputs))


def _message(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yield each field of a message: its number, and its value or the span of its bytes."""
    at = start
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length, at = _varint(data, at) if kind == _BYTES else ({_FIXED32: 4, _FIXED64: 8}.get(kind, 0), at)
        if at + length > end or kind not in {_BYTES, _FIXED32, _FIXED64}:
            raise ValueError(f"byte {at} is not part of an ONNX model")
        yield key >> 3, (at, at + length)
        at += length


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at + shift // 7 : at + shift // 7 + 1]
        if not byte:
            break
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value, at + shift // 7 + 1
    raise ValueError(f"byte {at} is not part of an ONNX model")


def _span(value: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(value, int):
        raise ValueError("found a number where bytes are expected")  # noqa: TRY004 - the file is damaged, not the call
    return value


def _text(data: mmap.mmap, value: int | tuple[int, int]) -> str:
    start, end = _span(value)
    return bytes(data[start:end]).decode()
