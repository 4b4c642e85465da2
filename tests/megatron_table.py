"""What was measured: table 1 of D. Narayanan et al., "Efficient Large-Scale Language Model Training
on GPU Clusters Using Megatron-LM", SC 2021 (arXiv 2104.04473).

Sizes, numbers of GPUs and TFLOP/s a GPU are those of the table; that these are products of each other was checked with
its last column.  Micro-batches and layers of a virtual stage are those of the script that the authors published with it
(examples/sc21/run_table_1.sh in NVIDIA/Megatron-LM).  No number here was used to choose one of the cluster file.
"""

from typing import NamedTuple

from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.transformer_model import TransformerModel


class Row(NamedTuple):
    billions: float
    heads: int
    width: int
    layers: int
    model: int
    stage: int
    gpus: int
    batch: int
    measured: int           # TFLOP/s a GPU
    petaflops: float        # of all
    micro_batch: int
    chunks: int


TABLE = [Row(1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 4.4, 16, 1),
         Row(3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 8.8, 16, 1),
         Row(7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 18.2, 16, 1),
         Row(18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 34.6, 8, 1),
         Row(39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 70.8, 4, 1),
         Row(76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 143.8, 2, 3),
         Row(145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 227.1, 2, 2),
         Row(310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 297.4, 1, 2),
         Row(529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 410.2, 1, 3),
         Row(1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163, 502.0, 1, 1)]
NAMES = [f"{row.billions}B" for row in TABLE]


def divided(row: Row) -> tuple[TransformerModel, ParallelSizes]:
    model = TransformerModel(row.layers, row.width, row.heads, 51200, 2048, row.batch, dropout=0.1).checked()
    return model, ParallelSizes(row.gpus // (row.model * row.stage), row.model, row.stage, row.micro_batch,
                                "interleaved" if row.chunks > 1 else "1f1b", row.chunks)
