"""Packed sequences under PyTorch's name for the module."""

from tenon.nn.packed import PackedSequence as PackedSequence
from tenon.nn.packed import pack_padded_sequence as pack_padded_sequence
from tenon.nn.packed import pack_sequence as pack_sequence
from tenon.nn.packed import pad_packed_sequence as pad_packed_sequence
from tenon.nn.packed import pad_sequence as pad_sequence
from tenon.nn.packed import unpack_sequence as unpack_sequence
from tenon.nn.packed import unpad_sequence as unpad_sequence
