"""The networks of the table in other sizes: odd and prime widths, other batches, depths, lengths and pictures.

    python -m benchmarks.table other_sizes --threads 1

What makes only the sizes of the table fast shows here.
"""

from __future__ import annotations

from functools import partial

from benchmarks.models import (
    Workload,
    adam,
    adamw,
    bert,
    gpt,
    lstm,
    mlp,
    mobilenet,
    momentum,
    pictures,
    resnet,
    resnet18,
    resnet50,
    small_cnn,
    tokens,
    vectors,
)

OTHER_SIZES = {workload.name: workload for workload in (
    Workload("mlp_narrow", partial(mlp, sizes=(20, 64, 64, 3)), vectors(3, 50, 20), momentum),
    Workload("mlp_odd", partial(mlp, sizes=(401, 257, 129, 7)), vectors(7, 37, 401), adam),
    Workload("mlp_wide", partial(mlp, sizes=(1024, 4096, 1024)), vectors(1024, 100, 1024), adam),
    Workload("mlp_1000", partial(mlp, sizes=(784, 300, 100, 10)), vectors(10, 1000, 784), momentum),
    Workload("cnn_lenet", partial(small_cnn, channels=(1, 20, 50), kernel=5), pictures(50, 1, 28), momentum),
    Workload("cnn_odd", partial(small_cnn, side=37, channels=(3, 17, 43)), pictures(11, 3, 37), adam),
    Workload("resnet18_48", resnet18, pictures(10, 3, 48), momentum),
    Workload("resnet18_infer", resnet18, pictures(3, 3, 32)),
    Workload("resnet34_224", partial(resnet, bottleneck=False, blocks=(3, 4, 6, 3), classes=1000, small=False),
             pictures(1, 3, 224)),
    Workload("resnet50_129", resnet50, pictures(1, 3, 129)),
    Workload("mobilenet_train", mobilenet, pictures(8, 3, 96), momentum),
    Workload("gpt_long", partial(gpt, layers=2, width=512, heads=8, vocabulary=512, context=1000),
             tokens(512, 2, 1000), adamw),
    Workload("gpt_narrow", partial(gpt, layers=4, width=120, heads=5, vocabulary=1009, context=100),
             tokens(1009, 16, 100), adamw),
    Workload("bert_77", partial(bert, layers=6, width=512, heads=8), tokens(30522, 3, 77)),
    Workload("bert_7", partial(bert, layers=4, width=312, heads=12), tokens(30522, 1, 7)),
    Workload("lstm_100", partial(lstm, hidden=100), vectors(10, 33, 7, 100), momentum),
)}
