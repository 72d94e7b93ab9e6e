"""Models of Hugging Face transformers made tiny: every architecture of the installed version that has a configuration.
A field of a configuration is made small by its name; per layer lists keep one layer of each kind."""

import copy
import importlib
import inspect
import math
import re

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

HIDDEN, HEADS, GROUPS, HEAD_DIM, INNER, LAYERS, VOCABULARY, POSITIONS = 64, 4, 2, 16, 96, 2, 160, 128
MOST_PARAMETERS = 100_000_000
WINDOW = 4

#: What each field becomes, the first that matches. Names as the configurations of transformers have them.
_SIZES = [
    (r"^(mamba_n_heads|mamba_num_heads)$", 2 * HIDDEN // HEAD_DIM),
    (r"(^|_)vocab_size(_per_layer_input|_or_config_json_file)?$|^n_vocab$|^num_tokens$", VOCABULARY),
    (r"^(max_position_embeddings|max_sequence_length|n_positions|n_ctx|max_source_positions|max_target_positions|seq_len|"
     r"max_seq_len|max_seqlen|context_length|model_max_length|block_size|max_length_positions)$", POSITIONS),
    (r"^(sliding_window|attention_chunk_size|window_size|local_attention|attention_window|sliding_window_size)$", WINDOW),
    (r"^(num_key_value_heads|num_kv_heads|n_kv_heads|num_key_value_heads_per_layer|swa_num_key_value_heads|multi_query_group_num)$", GROUPS),
    (r"(^|_)(num_attention_heads|attention_heads|n_heads?|num_heads|num_encoder_heads|num_decoder_heads)$", HEADS),
    (r"^(head_dim|d_kv|kv_channels|attention_head_size|attention_head_dim|global_head_dim|d_head|head_size|swa_head_dim|"
     r"mamba_d_head|mamba_head_dim|linear_key_head_dim|linear_value_head_dim|qk_nope_head_dim|v_head_dim|index_head_dim|swa_v_head_dim)$", HEAD_DIM),
    (r"^(qk_rope_head_dim|rotary_dim)$", HEAD_DIM // 2),
    (r"^(qk_head_dim)$", HEAD_DIM + HEAD_DIM // 2),
    (r"^(kv_lora_rank|q_lora_rank|o_lora_rank)$", 16),
    (r"^(num_local_experts|n_routed_experts|num_experts|moe_num_experts|n_experts)$", 4),
    (r"^(num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|top_k_experts|n_group|topk_group)$", 2),
    (r"(^|_)(intermediate_size|ffn_dim|d_ff|n_inner|ffn_hidden_size|feed_forward_hidden_size|mlp_dim|inner_dim|"
     r"moe_intermediate_size|d_inner|ffn_size|dim_feedforward|ff_dim|intermediate_dim)$", INNER),
    (r"(^|_)(hidden_size|d_model|embed_dim|n_embd|embedding_size|hidden_dim|embed_size|model_dim|hidden_channels|"
     r"width|emb_dim|encoder_hidden_dim|out_hidden_size|projection_dim|d_embed|output_dim|embedding_dim|hidden_size_per_layer_input|"
     r"entity_emb_size|dim|inner_hidden_size|d_proj|mlp_hidden_size)$", HIDDEN),
    (r"(^|_)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|depth|num_encoder_layers|num_decoder_layers|"
     r"num_blocks|num_hidden_groups|layers|num_encoder_blocks)$", LAYERS),
    (r"^(image_size|img_size|input_size|img_height|img_width)$", 32),
    (r"^(patch_size)$", 8),
    (r"^(num_frames)$", 2),
    (r"^(linear_num_key_heads|linear_num_value_heads|index_n_heads)$", HEADS),
    (r"^(mamba_d_state|ssm_state_size|state_size)$", 8),
    (r"^(chunk_size|mamba_chunk_size)$", 8),
    (r"^(index_topk)$", 4),
    (r"^num_kv_shared_layers$", 0),
    (r"^(num_queries|num_object_queries)$", 6),
    (r"^(num_mel_bins|num_mel_channels|feature_size)$", 16),
]  # fmt: skip
_SIZES = [(re.compile(name), size) for name, size in _SIZES]
_LAYERS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers)$")


class NotMade(Exception):
    """An architecture that this file cannot make tiny, and why."""


def _shrunk(name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    for pattern, size in _SIZES:
        if pattern.search(name):
            return min(value, size) if value > 0 else value
    return value


def _tokens(fields, next_token):
    """Special tokens within the vocabulary, each its own."""
    for name, value in fields.items():
        if not re.search(r"(token_id|token_index|_id|_index)s?$", name) or isinstance(value, bool):
            continue
        if isinstance(value, int) and value >= VOCABULARY - 40:
            fields[name] = next(next_token)
        elif isinstance(value, (list, tuple)) and value and all(type(x) is int for x in value) and max(value) >= VOCABULARY - 40:
            fields[name] = [next(next_token) for _ in value]


def _kept_layers(fields):
    """How many layers there are, and those that stay: the first of each kind, and at least LAYERS."""
    count = next((fields[n] for n in fields if _LAYERS.match(n) and type(fields[n]) is int), 0)
    kinds = next((fields[n] for n in _KINDS if isinstance(fields.get(n), (list, tuple)) and len(fields[n]) == count), [])
    kept = sorted({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values())
    kept += [i for i in range(count) if i not in kept][: max(0, LAYERS - len(kept))]
    return count, sorted(kept)


#: Where a configuration says nothing, and its models want a number.
_MISSING = {"head_dim": HEAD_DIM, "vocab_size": VOCABULARY, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1,
            "num_key_value_heads": HEADS}  # fmt: skip

_KINDS = ("layer_types", "layers_block_type", "block_types")


def shrink(fields, next_token, keep=()):
    """The fields of a configuration, as to_dict() gives them, made small."""
    count, kept = _kept_layers(fields)
    grouped = _grouped(fields)
    found = {}
    for name, value in fields.items():
        if name in keep:
            found[name] = value
        elif isinstance(value, dict):
            found[name] = shrink(value, next_token, keep) if name.endswith(("config", "configs")) or "model_type" in value else value
        elif _LAYERS.match(name) and type(value) is int:
            found[name] = len(kept) if value == count else min(value, LAYERS)
        elif isinstance(value, (list, tuple)) and count and len(value) == count and count > LAYERS:
            found[name] = [_shrunk(name.removesuffix("_per_layer"), value[i]) for i in kept]
        else:
            found[name] = _shrunk(name, value)
    heads = next((n for n in ("num_key_value_heads", "num_kv_heads", "n_kv_heads") if type(found.get(n)) is int), None)
    if heads and not grouped:
        found[heads] = HEADS
    for name in ("layer_types",):
        if isinstance(found.get(name), list) and count and len(fields[name]) != count:
            found.pop(name)
    if type(fields.get("head_dim")) is int and fields["head_dim"] == fields.get("qk_rope_head_dim"):
        found["head_dim"] = found["qk_rope_head_dim"]
    if "tokens" in keep:
        found |= {name: i for i, name in enumerate(("pad_token_id", "mask_token_id", "bos_token_id")) if found.get(name, 0) is None}
    for name, value in _MISSING.items():
        if name in found and found[name] is None:
            found[name] = value
    for name, value in (("attn_layer_indices", [LAYERS - 1]), ("attn_layer_offset", 1), ("attn_layer_period", 2)):
        if name in found:
            found[name] = value
    if set(found.get("layer_types") or ()) <= {"linear_attention", "mamba"} and found.get("layer_types"):
        found["layer_types"][-1] = "full_attention"
    if isinstance(found.get("block_types"), list) and len(found["block_types"]) > found.get("num_hidden_layers", 0):
        found["num_hidden_layers"] = len(found["block_types"])
    if isinstance(fields.get("per_layer_config"), dict):
        of = {int(i): x for i, x in fields["per_layer_config"].items()}
        found["per_layer_config"] = {new: shrink(of[i], next_token, keep) for new, i in enumerate(kept) if i in of}
    for name in ("out_features", "out_indices", "_out_features", "_out_indices", "stage_names", "attribute_map"):
        found.pop(name, None)
    _tokens(found, next_token)
    return found


def _grouped(fields):
    q = next((fields[n] for n in ("num_attention_heads", "n_heads", "num_heads") if type(fields.get(n)) is int), None)
    kv = next((fields[n] for n in ("num_key_value_heads", "num_kv_heads", "n_kv_heads") if type(fields.get(n)) is int), None)
    return kv is not None and kv != q


def _rope(fields, sections):
    """Sections of rotary positions add up to half of what is rotated of a head."""
    for name, value in fields.items():
        if isinstance(value, dict):
            if "mrope_section" in value or (sections and name == "rope_parameters"):
                half = int((fields.get("head_dim") or HEAD_DIM) * (value.get("partial_rotary_factor") or 1)) // 2
                value["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]
            for name in ("short_factor", "long_factor"):
                if isinstance(value.get(name), list):
                    value[name] = value[name][: HEAD_DIM // 2]
            _rope(value, sections)


def tiny_config(model_type, keep=()):
    config_class = configuration_auto.CONFIG_MAPPING[model_type]
    default = config_class()
    fields = shrink(copy.deepcopy(default.to_dict()), iter(range(VOCABULARY - 1, 3, -1)), keep)
    _rope(fields, "sections" in keep)
    for name in ("transformers_version", "model_type", "architectures", "dtype", "torch_dtype"):
        fields.pop(name, None)
    return config_class(**fields)


_GENERATING = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
               "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")  # fmt: skip


def classes_of(model_type):
    """Lists of classes of this architecture; one of each is tried until one can be made. Those that generate each stand
    alone. Parts of other models that no mapping names are found by their configuration."""

    def named(mapping):
        names = vars(modeling_auto)[mapping].get(model_type, ())
        return [getattr(transformers, name) for name in ([names] if isinstance(names, str) else names) if hasattr(transformers, name)]

    generating = list(dict.fromkeys(found for mapping in _GENERATING for found in named(mapping)))
    if generating:
        return [[found] for found in generating]
    rest = [n for n in sorted(vars(modeling_auto)) if n.startswith("MODEL_") and n.endswith("_MAPPING_NAMES") and n not in _GENERATING]
    found = list(dict.fromkeys(found for mapping in ("MODEL_MAPPING_NAMES", *rest) for found in named(mapping)))
    return [found[:3]] if found else [parts] if (parts := _parts(configuration_auto.CONFIG_MAPPING[model_type])[:3]) else []


def _parts(config_class):
    module = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        found = vars(importlib.import_module(module)).values()
    except ImportError:
        return []
    models = [x for x in found if isinstance(x, type) and issubclass(x, transformers.PreTrainedModel) and x.__module__ == module]
    return [x for x in models if x.config_class is config_class and not x.__name__.endswith("PreTrainedModel")]


def model_types():
    return list(configuration_auto.CONFIG_MAPPING_NAMES)


def build(config, model_class, implementation):
    torch.manual_seed(1)
    model = model_class._from_config(copy.deepcopy(config), attn_implementation=implementation).eval()
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.pad_token_id = 0
        if getattr(config, "is_encoder_decoder", False):
            model.generation_config.decoder_start_token_id = 2
    return model


def require_small(config, model_class):
    with torch.device("meta"):
        model = model_class._from_config(copy.deepcopy(config), attn_implementation="eager")
    count = sum(p.numel() for p in model.parameters())
    if count > MOST_PARAMETERS:
        raise NotMade(f"{count / 1e6:.0f} million parameters are left")


@torch.no_grad()
def spread(model):
    """Weights under which masks, scales and biases are seen: scores differ by about 1."""
    generator = torch.Generator().manual_seed(2)
    for name, p in model.named_parameters():
        if not p.is_floating_point():
            continue
        if p.dim() >= 2:
            fan = math.prod(p.shape[1:]) if p.dim() < 3 or "expert" not in name else p.shape[-1]
            p.normal_(0, 1.0 if "embed" in name or "bias" in name else 1.3 / fan**0.5, generator=generator)
        elif "bias" in name or "sink" in name:
            p.normal_(0, 0.3, generator=generator)
        else:  # some are left as memory was
            p.copy_(torch.where(p.isfinite() & (p.abs() < 20), p, 1.0))


def parameters_of(model):
    return inspect.signature(model.forward).parameters
