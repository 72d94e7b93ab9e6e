"""redblue.onnx.fuse on what torch.onnx.export writes of small models of transformers: the same numbers as the models give."""

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import redblue.onnx  # noqa: E402

SMALL = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 20}


def net_of(name):
    """The model, the names of what it takes, the number of its attentions."""
    words = {"vocab_size": 50, **SMALL}
    if name.startswith("bert"):
        way = "sdpa" if name.endswith("sdpa") else "eager"
        config = transformers.BertConfig(**words, attn_implementation=way)
        return transformers.BertModel(config, add_pooling_layer=False), ("input_ids", "attention_mask"), 1
    if name == "mpnet":
        config = transformers.MPNetConfig(**words)
        return transformers.MPNetModel(config, add_pooling_layer=False), ("input_ids", "attention_mask"), 1
    if name == "t5":
        config = transformers.T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=20, num_layers=1, num_heads=4, use_cache=False)
        return transformers.T5Model(config), ("input_ids", "attention_mask", "decoder_input_ids"), 3
    if name == "whisper":
        sizes = {f"{part}_{size}": n for part in ("encoder", "decoder") for size, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 20))}
        tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
        config = transformers.WhisperConfig(
            vocab_size=50, d_model=32, **sizes, **tokens, max_source_positions=10, max_target_positions=8, num_mel_bins=4,
            attn_implementation="sdpa",
        )  # fmt: skip
        return transformers.models.whisper.modeling_whisper.WhisperEncoder(config), ("input_features",), 1
    config = transformers.ViTConfig(**SMALL, image_size=8, patch_size=4, attn_implementation="eager")
    return transformers.ViTModel(config, add_pooling_layer=False), ("pixel_values",), 1


class Alone(torch.nn.Module):
    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *x):
        return self.net(**dict(zip(self.names, x)))[0]


@pytest.mark.parametrize(
    "name, dynamo", [*((name, False) for name in ("bert", "bert-sdpa", "mpnet", "t5", "vit", "whisper")), ("bert-sdpa", True), ("whisper", True)]
)
def test_exported_models(name, dynamo, tmp_path):
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    net, names, attentions = net_of(name)
    ids = torch.randint(4, 50, (2, 6))
    of_names = {
        "input_ids": ids,
        "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2]),
        "decoder_input_ids": ids[:, :3],
        "input_features": torch.randn(2, 4, 20),
        "pixel_values": torch.randn(2, 3, 8, 8),
    }
    inputs = tuple(of_names[n] for n in names)
    alone, path = Alone(net, names).eval(), tmp_path / "m.onnx"
    axes = {n: {0: "batch", 1: f"{n}_length"} for n in names if n.endswith(("ids", "mask"))}
    how = {"opset_version": 20, "external_data": False} if dynamo else {"opset_version": 17, "dynamic_axes": axes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(alone, inputs, path, dynamo=dynamo, input_names=list(names), **how)
    fused = redblue.onnx.fuse(onnx.load(path))
    assert fused.count == len(fused.found) == attentions, fused
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        (got,) = redblue.onnx.evaluator(fused.model).run(None, dict(zip(names, (x.numpy() for x in inputs))))
    np.testing.assert_allclose(got, alone(*inputs).detach(), rtol=0, atol=5e-6)
