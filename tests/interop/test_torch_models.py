"""`tn.models` beside the packages whose checkpoints they take: transformers, timm, torchvision; random weights."""

from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn
from tenon.models import GPT2, Bert, Llama, ResNet, ViT, generate, resnet50

rng = np.random.default_rng(0)


def weights(net: Any) -> dict[str, np.ndarray]:
    return {name: x.numpy() for name, x in net.state_dict().items()}


def close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    wanted = wanted.detach().numpy()
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


def same_gradients(ours: Any, found: Any, theirs: Any, wanted: Any) -> None:
    """Of all weights that have one."""
    (found ** 2).mean().backward()
    (wanted ** 2).mean().backward()
    gradients = {type(ours)._own_name(ours, name): p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in gradients.values())
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), gradients[name].numpy(), rtol=2e-3, atol=1e-4 * largest, err_msg=name)


# ---------------------------------------------------------------- decoders

TINY_GPT2 = {"vocab_size": 31, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4}
TINY_LLAMA = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500.0,
          "original_max_position_embeddings": 16}


def decoders(name: str) -> tuple[Any, Any]:
    """The model of transformers and ours, of the same weights, which are large enough to say something."""
    transformers = pytest.importorskip("transformers")
    made = {"gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**TINY_GPT2, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)),
            "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY_LLAMA)),
            "llama tied": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY_LLAMA, tie_word_embeddings=True)),
            "llama 3": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY_LLAMA, rope_parameters=LLAMA3)),
            "qwen 2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TINY_LLAMA))}[name]()
    theirs = made.eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape) * (0.4 if p.ndim > 1 else 1.0))
    kind: Any = GPT2 if name == "gpt2" else Llama
    config = theirs.config.to_dict()
    ours = kind(config, **({"qkv_bias": True} if name == "qwen 2" else {}))
    ours.load_public(weights(theirs))
    return theirs, ours.eval()


DECODERS = ["gpt2", "llama", "llama tied", "llama 3", "qwen 2"]


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name: str) -> None:
    theirs, ours = decoders(name)
    ids = rng.integers(0, 31, (2, 11))
    wanted = theirs(torch.tensor(ids)).logits
    found = ours(tn.tensor(ids))
    close(found, wanted)
    close(tn.jit(lambda ids: ours(ids))(tn.tensor(ids)), wanted)
    same_gradients(ours, found, theirs, wanted)
    caches = ours.new_caches(2, 11)
    with tn.no_grad():
        parts = [ours(tn.tensor(ids[:, :6]), caches)]
        parts += [ours(tn.tensor(ids[:, k:k + 1]), caches, tn.tensor(k)) for k in range(6, 11)]
    close(tn.cat(parts, dim=1), wanted)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("options", [{}, {"eos_token_id": 5, "pad_token_id": 1}, {"num_beams": 3}, {"num_beams": 4, "length_penalty": 2.0},
                                     {"num_beams": 3, "eos_token_id": 5, "pad_token_id": 1},
                                     {"num_beams": 2, "eos_token_id": 9, "pad_token_id": 1, "length_penalty": 0.5}])
def test_texts_are_those_of_transformers(name: str, options: dict[str, Any]) -> None:
    theirs, ours = decoders(name)
    theirs.generation_config.pad_token_id = 0
    for seed in range(3):
        ids = np.random.default_rng(seed).integers(0, 31, (2, 5))
        given = {"eos_token_id": None, **options}
        wanted = theirs.generate(torch.tensor(ids), attention_mask=torch.ones(2, 5), max_new_tokens=12, do_sample=False, **given).numpy()
        found = generate(ours, tn.tensor(ids), max_new_tokens=12, **options).numpy()
        np.testing.assert_array_equal(found[:, :wanted.shape[1]], wanted)
        assert (found[:, wanted.shape[1]:] == 1).all()


def test_drawn_texts_keep_to_the_likeliest_tokens() -> None:
    _, ours = decoders("gpt2")
    ids = tn.tensor(np.repeat(rng.integers(0, 31, (1, 4)), 400, 0))
    logits = ours(ids[:1])[0, -1].numpy()
    p = np.exp(logits / 2 - (logits / 2).max())
    p /= p.sum()
    drawn = generate(ours, ids, max_new_tokens=1, do_sample=True, temperature=2.0)[:, -1].numpy()
    np.testing.assert_allclose(np.bincount(drawn, minlength=31) / 400, p, atol=0.1)
    best = np.argsort(-logits)
    assert set(generate(ours, ids, max_new_tokens=1, do_sample=True, top_k=3)[:, -1].tolist()) <= set(best[:3].tolist())
    few = best[:int((np.cumsum(p[best]) < 0.5).sum()) + 1]
    assert set(generate(ours, ids, max_new_tokens=1, do_sample=True, top_p=0.5, temperature=2.0)[:, -1].tolist()) <= set(few.tolist())
    tn.manual_seed(0)
    whole = generate(ours, ids[:3], max_new_tokens=6, do_sample=True, top_k=5)
    tn.manual_seed(0)
    streamed = list(tn.models.stream(ours, ids[:3], max_new_tokens=6, do_sample=True, top_k=5))
    np.testing.assert_array_equal(tn.stack(streamed, dim=1).numpy(), whole.numpy()[:, 4:])


# ---------------------------------------------------------------- encoders and images

def test_bert() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    theirs = transformers.BertModel(transformers.BertConfig(**sizes)).eval()
    ours = Bert(theirs.config.to_dict()).eval()
    ours.load_public(weights(theirs))
    ids, mask, kinds = rng.integers(0, 31, (2, 7)), np.array([[1] * 7, [1] * 4 + [0] * 3]), rng.integers(0, 2, (2, 7))
    for options in ({}, {"attention_mask": mask}, {"attention_mask": mask, "token_type_ids": kinds}):
        wanted = theirs(torch.tensor(ids), **{name: torch.tensor(x) for name, x in options.items()})
        found = ours(tn.tensor(ids), **{name: tn.tensor(x) for name, x in options.items()})
        close(found.last_hidden_state, wanted.last_hidden_state)
        close(found.pooler_output, wanted.pooler_output)
    same_gradients(ours, found.pooler_output, theirs, wanted.pooler_output)
    with_head = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    headless = Bert(theirs.config.to_dict())
    found_names = {f"bert.{name}": x for name, x in weights(theirs).items()} | {
        name: x for name, x in weights(with_head).items() if name.startswith("cls.")}
    headless.load_public(found_names)
    close(headless.eval()(tn.tensor(ids)).pooler_output, theirs(torch.tensor(ids)).pooler_output)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_is_timms(name: str) -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model(name, num_classes=7).eval()
    ours = getattr(tn.models, name)(num_classes=7).eval()
    ours.load_public(weights(theirs))
    x = rng.normal(size=(2, 3, 40, 33)).astype(np.float32)
    close(ours(tn.tensor(x)), theirs(torch.tensor(x)), 1e-4)


def test_vit_is_timms() -> None:
    vision = pytest.importorskip("timm.models.vision_transformer")
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    theirs = vision.VisionTransformer(**sizes).eval()
    ours = ViT(**sizes).eval()
    ours.load_public(weights(theirs))
    x = rng.normal(size=(2, 3, 24, 24)).astype(np.float32)
    found, wanted = ours(tn.tensor(x)), theirs(torch.tensor(x))
    close(found, wanted)
    same_gradients(ours, found, theirs, wanted)
    headless = ViT(**sizes | {"num_classes": 0})
    headless.load_public({name: x for name, x in weights(theirs).items() if not name.startswith("head")})
    close(headless(tn.tensor(x)), theirs.forward_features(torch.tensor(x))[:, 0])
    with pytest.raises(ValueError, match="images of 24 x 24 were expected"):
        ours(tn.zeros(1, 3, 32, 32))


def test_mobilenet_is_torchvisions() -> None:
    vision = pytest.importorskip("torchvision.models")
    theirs = vision.mobilenet_v2(num_classes=7, width_mult=0.35).eval()
    ours = tn.models.MobileNetV2(num_classes=7, width_mult=0.35).eval()
    ours.load_public(weights(theirs))
    x = rng.normal(size=(2, 3, 40, 33)).astype(np.float32)
    close(ours(tn.tensor(x)), theirs(torch.tensor(x)), 1e-4)


@pytest.mark.parametrize("options", [{}, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1}])
def test_t5(options: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 31, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 3,
             "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0}
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes | options)).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape) * (0.2 if p.ndim > 1 else 1.0))
    ours = tn.models.T5(theirs.config.to_dict()).eval()
    ours.load_public(weights(theirs))
    ids, answer, mask = rng.integers(1, 31, (2, 20)), rng.integers(1, 31, (2, 17)), np.array([[1] * 20, [1] * 13 + [0] * 7])
    wanted = theirs(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(answer), attention_mask=torch.tensor(mask)).logits
    close(ours(tn.tensor(ids), tn.tensor(answer), tn.tensor(mask)), wanted)
    close(tn.jit(lambda a, b: ours(a, b))(tn.tensor(ids), tn.tensor(answer)),
          theirs(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(answer)).logits)
    apart = tn.models.T5(theirs.config.to_dict(), tie_word_embeddings=False, scale_decoder_outputs=None).eval()
    apart.load_public(weights(theirs))
    close(apart(tn.tensor(ids), tn.tensor(answer), tn.tensor(mask)) * (0.25 if not options else 1.0), wanted)
    text = theirs.generate(torch.tensor(ids), attention_mask=torch.tensor(mask), max_new_tokens=6, do_sample=False, eos_token_id=None)
    np.testing.assert_array_equal(ours.answer(tn.tensor(ids), 6, tn.tensor(mask)).numpy(), text.numpy())


def test_whisper() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 31, "num_mel_bins": 5, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 24, "max_source_positions": 9, "max_target_positions": 20,
             "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    theirs = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sizes)).eval()
    ours = tn.models.Whisper(theirs.config.to_dict()).eval()
    close(ours.encoder.embed_positions.weight, theirs.model.encoder.embed_positions.weight)
    ours.load_public(weights(theirs))
    features, ids = rng.normal(size=(2, 5, 18)).astype(np.float32), rng.integers(0, 31, (2, 6))
    wanted = theirs(input_features=torch.tensor(features), decoder_input_ids=torch.tensor(ids)).logits
    close(ours(tn.tensor(features), tn.tensor(ids)), wanted)
    listening, text = ours.listening(tn.tensor(features)), ids[:, :2]
    for _ in range(5):
        best = theirs(input_features=torch.tensor(features), decoder_input_ids=torch.tensor(text)).logits[:, -1].argmax(-1)
        text = np.concatenate([text, best.numpy()[:, None]], axis=1)
    np.testing.assert_array_equal(generate(listening, tn.tensor(ids[:, :2]), max_new_tokens=5).numpy(), text)


def test_clip() -> None:
    transformers = pytest.importorskip("transformers")
    text = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
            "max_position_embeddings": 12, "eos_token_id": 2}
    vision = {"hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 16, "patch_size": 8}
    theirs = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=10)).eval()
    ours = tn.models.CLIP(theirs.config.to_dict()).eval()
    ours.load_public(weights(theirs))
    ids, pixels = rng.integers(3, 30, (3, 7)), rng.normal(size=(2, 3, 16, 16)).astype(np.float32)
    ids[:, 5] = 30
    wanted = theirs(input_ids=torch.tensor(ids), pixel_values=torch.tensor(pixels))
    found = ours(tn.tensor(ids), tn.tensor(pixels))
    for name in ("logits_per_image", "logits_per_text", "image_embeds", "text_embeds"):
        close(getattr(found, name), getattr(wanted, name))
    same_gradients(ours, found.logits_per_text, theirs, wanted.logits_per_text)


# ---------------------------------------------------------------- graphs

def test_gcn_is_a_product_with_the_normalised_adjacency_matrix() -> None:
    edges, x = np.array([[0, 1, 1, 4, 3, 2], [1, 0, 2, 1, 4, 4]]), rng.normal(size=(5, 3))
    layer = tn.models.GCNConv(3, 2).double()
    adjacency = np.eye(5)
    adjacency[edges[1], edges[0]] += 1
    scale = adjacency.sum(1) ** -0.5
    wanted = scale[:, None] * adjacency * scale @ (x @ layer.lin.weight.numpy().T) + layer.bias.numpy()
    np.testing.assert_allclose(layer(tn.tensor(x), tn.tensor(edges)).numpy(), wanted, rtol=1e-12)
    net = tn.models.GCN(3, 4, 2).eval()
    call = tn.jit(lambda x, e: net(x, e))
    close(call(tn.tensor(x.astype("f4")), tn.tensor(edges)), torch.tensor(net(tn.tensor(x.astype("f4")), tn.tensor(edges)).detach().numpy()))


@pytest.mark.parametrize("joined", [True, False])
def test_gat_is_a_softmax_over_neighbours(joined: bool) -> None:
    edges, x = np.array([[0, 1, 1, 4, 3, 2], [1, 0, 2, 1, 4, 4]]), rng.normal(size=(5, 3))
    layer = tn.models.GATConv(3, 4, heads=2, concat=joined).double()
    h = (x @ layer.lin.weight.numpy().T).reshape(5, 2, 4)
    scores = (h * layer.att_src.numpy()).sum(2)[None] + (h * layer.att_dst.numpy()).sum(2)[:, None]     # [to, from, heads]
    scores = np.where(scores > 0, scores, 0.2 * scores)
    there = np.eye(5, dtype=bool)
    there[edges[1], edges[0]] = True
    e = np.where(there[:, :, None], np.exp(scores), 0)
    out = np.einsum("tfh,fhc->thc", e / e.sum(1, keepdims=True), h)
    wanted = (out.reshape(5, 8) if joined else out.mean(1)) + layer.bias.numpy()
    found = layer(tn.tensor(x), tn.tensor(edges))
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12)
    found.sum().backward()
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in layer.parameters())
    assert tn.models.GAT(3, 4, 2, heads=2)(tn.tensor(x.astype("f4")), tn.tensor(edges)).shape == (5, 2)


def test_sizes_of_public_models() -> None:
    def count(model: Any) -> int:
        return sum(p.size for p in model.parameters())
    assert count(resnet50()) == 25_557_032 and count(ResNet(layers=(2, 2, 2, 2), bottleneck=False)) == 11_689_512
    assert count(GPT2(n_layer=1)) == 124_439_808 - 11 * 7_087_872
    assert count(ViT(depth=1)) == 86_567_656 - 11 * 7_087_872
