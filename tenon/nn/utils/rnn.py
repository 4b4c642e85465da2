"""Packed sequences under PyTorch's name for the module."""

from tenon.nn.packed_sequences import PackedSequence as PackedSequence
from tenon.nn.packed_sequences import pack_padded_sequence as pack_padded_sequence
from tenon.nn.packed_sequences import pack_sequence as pack_sequence
from tenon.nn.packed_sequences import pad_packed_sequence as pad_packed_sequence
from tenon.nn.packed_sequences import pad_sequence as pad_sequence
from tenon.nn.packed_sequences import unpack_sequence as unpack_sequence
from tenon.nn.packed_sequences import unpad_sequence as unpad_sequence
