"""Well-known models, one readable file each, which take the weights of public checkpoints under the names they have.

    model = tn.models.GPT2.from_folder("gpt2")            # config.json and model.safetensors, as published
    ids = tn.models.generate(model, prompt, max_new_tokens=50, top_p=0.9, do_sample=True)

Each has a `Config` with the fields of its `config.json`, and starts with random weights: `tn.models.GPT2(n_layer=2)`.
"""

from tenon.models.bert import Bert as Bert
from tenon.models.clip import CLIP as CLIP
from tenon.models.diffusion import NoiseSchedule as NoiseSchedule
from tenon.models.diffusion import sample as sample
from tenon.models.generation import generate as generate
from tenon.models.generation import stream as stream
from tenon.models.gpt2 import GPT2 as GPT2
from tenon.models.graph_networks import GAT as GAT
from tenon.models.graph_networks import GCN as GCN
from tenon.models.graph_networks import GATConv as GATConv
from tenon.models.graph_networks import GCNConv as GCNConv
from tenon.models.llama import Llama as Llama
from tenon.models.mobilenet import MobileNetV2 as MobileNetV2
from tenon.models.public_model import PublicModel as PublicModel
from tenon.models.resnet import ResNet as ResNet
from tenon.models.resnet import resnet18 as resnet18
from tenon.models.resnet import resnet34 as resnet34
from tenon.models.resnet import resnet50 as resnet50
from tenon.models.resnet import resnet101 as resnet101
from tenon.models.t5 import T5 as T5
from tenon.models.unet import UNet as UNet
from tenon.models.vit import ViT as ViT
from tenon.models.whisper import Whisper as Whisper
